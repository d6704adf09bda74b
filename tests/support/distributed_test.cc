#include "tests/support/distributed_test.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <string_view>

#include "tests/support/launcher_process.h"
#include "tests/support/rank_report.h"

namespace dlaunch::testing {
namespace {

using ::testing::TestInfo;
using ::testing::TestPartResult;
using ::testing::UnitTest;
namespace fs = std::filesystem;

// Handed from the parent to the ranks.
constexpr char kReportVariable[] = "DLAUNCH_TEST_REPORT";  // where to append events
constexpr char kCallVariable[] = "DLAUNCH_TEST_CALL";      // which call of run_on_ranks is meant
constexpr char kSeedVariable[] = "DLAUNCH_TEST_SEED";

// Properties of the running test, which gtest clears when the test starts.
constexpr char kCallsProperty[] = "run_on_ranks";
constexpr char kSeedProperty[] = "run_seed";

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only
  return value == nullptr ? "" : value;
}

const char* property(const TestInfo& test, std::string_view key) {
  for (int i = 0; i < test.result()->test_property_count(); ++i) {
    const auto& candidate = test.result()->GetTestProperty(i);
    if (candidate.key() == key) return candidate.value();
  }
  return nullptr;
}

// Counts the calls of run_on_ranks within the running test, from 0.
int next_call(const TestInfo& test) {
  const char* calls = property(test, kCallsProperty);
  const int call = calls == nullptr ? 0 : std::stoi(calls);
  ::testing::Test::RecordProperty(kCallsProperty, call + 1);
  return call;
}

// A failure that is not of an expectation: at the test itself.
void add_failure(const TestInfo& test, const std::string& message) {
  ADD_FAILURE_AT(test.file(), test.line()) << message;
}

// --- on a rank -----------------------------------------------------------------------------------

void connect_and_run(const JobEnvironment& job, const RankBody& body, const TestInfo& test) {
  auto world = connect_world(job, make_logger("world"));
  if (!world.ok()) {
    add_failure(test, "the world did not connect: " + world.status().to_string());
    return;
  }
  try {
    body(**world);
  } catch (const std::exception& error) {
    add_failure(test, std::string("exception out of the body: ") + error.what());
  } catch (...) {
    add_failure(test, "exception of an unknown type out of the body");
  }
}

// Failures are told through the report, so the exit code is 0: with another one dlaunch would end
// the other ranks before they can tell theirs.
[[noreturn]] void run_as_rank(const RankBody& body, const TestInfo& test) {
  const int report = ::open(variable(kReportVariable).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  const auto job = read_job_environment();
  if (report < 0 || !job.ok()) {
    std::cerr << "dlaunch::testing: this rank cannot start: "
              << (job.ok() ? "no report to write to" : job.status().to_string()) << '\n';
    std::exit(1);  // NOLINT(concurrency-mt-unsafe): the only thread
  }
  auto& listeners = UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  auto* const reporter = new ReportingListener(report, job->rank);
  listeners.Append(reporter);  // gtest owns it
  write_event(report, {.rank = job->rank, .kind = RankEvent::Kind::kStarted});
  // What has failed already, in the fixture or before this call.
  for (int i = 0; i < test.result()->total_part_count(); ++i) {
    reporter->OnTestPartResult(test.result()->GetTestPartResult(i));
  }
  connect_and_run(*job, body, test);
  write_event(report, {.rank = job->rank, .kind = RankEvent::Kind::kFinished});
  std::exit(0);  // NOLINT(concurrency-mt-unsafe): the communicator's threads have ended
}

// --- in the parent -------------------------------------------------------------------------------

bool is_program(const fs::path& path) {
  return fs::is_regular_file(path) && ::access(path.c_str(), X_OK) == 0;
}

// See the header for the order; empty if there is none.
fs::path find_launcher(const std::string& configured) {
  if (const auto named = variable("DLAUNCH_EXECUTABLE"); !named.empty()) return named;
  if (!configured.empty()) return configured;
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  std::vector<fs::path> candidates{here / "dlaunch", here.parent_path() / "dlaunch"};
  std::istringstream folders(variable("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    candidates.push_back(fs::path(folder) / "dlaunch");
  }
  const auto found = std::find_if(candidates.begin(), candidates.end(), is_program);
  return found == candidates.end() ? fs::path() : *found;
}

// dlaunch ... this program, with its own arguments but for gtest's, which are about the parent.
std::vector<std::string> make_arguments(const fs::path& launcher, int workers,
                                        const TestInfo& test) {
  std::vector<std::string> arguments{launcher, "--nproc", std::to_string(workers), "--",
                                     fs::read_symlink("/proc/self/exe")};
  arguments.push_back("--gtest_filter=" + std::string(test.test_suite_name()) + "." + test.name());
  for (const char* flag : {"also_run_disabled_tests", "brief=1", "color=no"}) {
    arguments.push_back(std::string("--gtest_") + flag);
  }
  std::ifstream own("/proc/self/cmdline");
  std::string argument;
  std::getline(own, argument, '\0');  // the program
  while (std::getline(own, argument, '\0')) {
    if (!argument.starts_with("--gtest_")) arguments.push_back(argument);
  }
  return arguments;
}

// Whether gtest reads it, to write files or to choose tests.
bool is_for_gtest(std::string_view name) {
  return name.starts_with("GTEST_") || name == "TEST_PREMATURE_EXIT_FILE" ||
         name == "XML_OUTPUT_FILE" || name == "TESTBRIDGE_TEST_ONLY";
}

// The parent's environment without what is for gtest, and with `additions`, of which the last of a
// name counts.
std::vector<std::string> make_environment(
    const std::vector<std::pair<std::string, std::string>>& additions) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(additions.begin(), additions.end(),
                                      [&](const auto& addition) { return addition.first == name; });
    if (!replaced && !is_for_gtest(name)) environment.emplace_back(text);
  }
  for (auto addition = additions.begin(); addition != additions.end(); ++addition) {
    const bool again = std::any_of(addition + 1, additions.end(), [&](const auto& later) {
      return later.first == addition->first;
    });
    if (!again) environment.push_back(addition->first + "=" + addition->second);
  }
  return environment;
}

// "rank 1 (in the body), rank 3 (not started)", or nothing if all finished.
std::string unfinished_ranks(const std::vector<RankEvent>& events, int workers) {
  std::string text;
  for (int rank = 0; rank < workers; ++rank) {
    const auto happened = [&](RankEvent::Kind kind) {
      return std::any_of(events.begin(), events.end(), [&](const RankEvent& event) {
        return event.rank == rank && event.kind == kind;
      });
    };
    if (happened(RankEvent::Kind::kFinished)) continue;
    if (!text.empty()) text += ", ";
    text += "rank " + std::to_string(rank) +
            (happened(RankEvent::Kind::kStarted) ? " (in the body)" : " (not started)");
  }
  return text;
}

// Repeats in this process what the ranks reported.
void repeat_failures(const std::vector<RankEvent>& events, int workers) {
  for (const auto& event : events) {
    if (event.kind != RankEvent::Kind::kFailure && event.kind != RankEvent::Kind::kFatalFailure) {
      continue;
    }
    const auto type = event.kind == RankEvent::Kind::kFailure ? TestPartResult::kNonFatalFailure
                                                              : TestPartResult::kFatalFailure;
    const char* file = event.file.empty() ? nullptr : event.file.c_str();
    GTEST_MESSAGE_AT_(file, event.line, "", type)
        << "[rank " << event.rank << " of " << workers << "] " << event.message;
  }
}

constexpr std::string_view kLauncherPrefix = "dlaunch:";

// What dlaunch itself said: its lines in the output.
std::string launcher_lines(const std::string& output) {
  std::istringstream lines(output);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kLauncherPrefix)) found += "\n  " + line;
  }
  return found;
}

// `told`: what dlaunch said is in a failure already.
void show_output(const std::string& output, bool told) {
  constexpr std::size_t kMost = 65536;
  std::istringstream lines(output.size() <= kMost ? output : output.substr(output.size() - kMost));
  std::string shown;
  for (std::string line; std::getline(lines, line);) {
    const bool is_new = !told || !line.starts_with(kLauncherPrefix);
    if (is_new && !line.starts_with("Running main() from ")) shown += "  | " + line + "\n";
  }
  if (shown.empty()) return;
  std::cout << "What the ranks wrote" << (output.size() <= kMost ? ":\n" : ", the last 64 KiB:\n")
            << shown << std::flush;
}

bool all_skipped(const std::vector<RankEvent>& events, int workers) {
  std::vector<bool> skipped(static_cast<std::size_t>(workers));
  for (const auto& event : events) {
    if (event.kind == RankEvent::Kind::kSkip)
      skipped.at(static_cast<std::size_t>(event.rank)) = true;
  }
  return std::find(skipped.begin(), skipped.end(), false) == skipped.end();
}

// Turns what happened to the job into failures (or a skip) of the parent's test.
void report_job(const LauncherProcess& launcher, const std::vector<RankEvent>& events, bool in_time,
                int workers, const TestInfo& test, std::chrono::nanoseconds deadline) {
  const std::string unfinished = unfinished_ranks(events, workers);
  const bool failed = in_time && launcher.exit_code() != 0;
  repeat_failures(events, workers);
  if (!in_time) {
    const auto seconds = std::chrono::duration<double>(deadline).count();
    std::ostringstream message;
    message << "the deadline of " << seconds << " s passed; not finished: " << unfinished;
    add_failure(test, message.str());
  } else if (failed) {
    add_failure(test, "the job failed with exit code " + std::to_string(launcher.exit_code()) +
                          (unfinished.empty() ? "" : "; not finished: " + unfinished) +
                          launcher_lines(launcher.output()));
  } else if (!unfinished.empty()) {
    add_failure(test, "ranks exited with code 0 before the end of the body: " + unfinished);
  }
  if (::testing::Test::HasFailure()) {
    show_output(launcher.output(), failed);
    std::cout << "Repeat with the same random inputs: " << kSeedVariable << "=" << run_seed()
              << std::endl;
    return;
  }
  if (!variable("DLAUNCH_LOG").empty()) show_output(launcher.output(), false);
  if (all_skipped(events, workers)) {
    const auto& first = *std::find_if(events.begin(), events.end(), [](const RankEvent& event) {
      return event.kind == RankEvent::Kind::kSkip;
    });
    GTEST_MESSAGE_AT_(first.file.c_str(), first.line, first.message.c_str(), TestPartResult::kSkip);
  }
}

constexpr std::chrono::hours kLongestTimeout{30 * 24};  // that DLAUNCH_TIMEOUT may be

std::string seconds_text(std::chrono::nanoseconds duration) {
  return std::to_string(std::chrono::duration<double>(duration).count());
}

void run_as_parent(int workers, int call, const TestInfo& test, const RunOptions& options) {
  const fs::path program = find_launcher(options.launcher);
  if (!is_program(program)) {
    add_failure(test, std::string("dlaunch was not found") +
                          (program.empty() ? std::string() : " at " + program.string()) +
                          "; set DLAUNCH_EXECUTABLE to its path");
    return;
  }
  const MemoryFile report;
  std::vector<std::pair<std::string, std::string>> additions{
      {"DLAUNCH_TIMEOUT", seconds_text(std::min<std::chrono::nanoseconds>(options.deadline / 4 * 3,
                                                                          kLongestTimeout))}};
  additions.insert(additions.end(), options.environment.begin(), options.environment.end());
  additions.emplace_back(kReportVariable, report.path());
  additions.emplace_back(kCallVariable, std::to_string(call));
  additions.emplace_back(kSeedVariable, std::to_string(run_seed()));

  const Deadline deadline = Deadline::after(options.deadline);
  auto launcher =
      LauncherProcess::start(make_arguments(program, workers, test), make_environment(additions));
  if (!launcher.ok()) {
    add_failure(test, launcher.status().to_string());
    return;
  }
  const bool in_time = launcher->wait(deadline);
  // Before the ranks are ended, so that it tells where they were.
  const auto events = parse_events(report.content());
  launcher->stop();
  report_job(*launcher, events, in_time, workers, test, options.deadline);
}

}  // namespace

void run_on_ranks(int workers, const RankBody& body, const RunOptions& options) {
  const TestInfo* test = UnitTest::GetInstance()->current_test_info();
  if (test == nullptr || workers < 1) {
    ADD_FAILURE() << "run_on_ranks needs at least one worker (not " << workers
                  << ") and a running test";
    return;
  }
  const int call = next_call(*test);
  if (variable(kReportVariable).empty()) {
    run_as_parent(workers, call, *test, options);
    return;
  }
  const int wanted = std::stoi(variable(kCallVariable));
  if (call == wanted) run_as_rank(body, *test);
  // Earlier calls are over: the parent has made them. Later ones can only be inside the body.
  if (call > wanted) ADD_FAILURE() << "run_on_ranks called from the body of run_on_ranks";
}

std::uint64_t run_seed() {
  const TestInfo* test = UnitTest::GetInstance()->current_test_info();
  const char* drawn = test == nullptr ? nullptr : property(*test, kSeedProperty);
  std::string seed = drawn == nullptr ? variable(kSeedVariable) : drawn;
  if (seed.empty()) seed = std::to_string(std::random_device()());
  ::testing::Test::RecordProperty(kSeedProperty, seed);
  return std::stoull(seed);
}

}  // namespace dlaunch::testing
