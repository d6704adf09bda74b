#include "tests/support/distributed_test.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "tests/support/job_report.h"
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
constexpr char kNameVariable[] = "DLAUNCH_TEST_NAME";      // of the test: suite.name
constexpr char kCallVariable[] = "DLAUNCH_TEST_CALL";      // which call of run_on_ranks is meant
// For what a body starts, which is not a rank itself: the test.
constexpr char kBodyVariable[] = "DLAUNCH_TEST_BODY";

// Properties of the running test, which gtest clears when the test starts.
constexpr char kCallsProperty[] = "run_on_ranks";
constexpr char kSeedProperty[] = "run_seed";

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only
  return value == nullptr ? "" : value;
}

std::string full_name(const TestInfo& test) {
  return std::string(test.test_suite_name()) + "." + test.name();
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

// --- on a rank -----------------------------------------------------------------------------------

void connect_and_run(const JobEnvironment& job, const RankBody& body, const TestInfo& test) {
  auto world = connect_world(job, make_logger("world"));
  if (!world.ok()) {
    add_failure(test, "the world did not connect: " + world.status().to_string());
    return;
  }
  try {
    body(**world);
  } catch (const ::testing::AssertionException&) {  // NOLINT(bugprone-empty-catch): recorded
  } catch (const std::exception& error) {
    add_failure(test, std::string("exception out of the body: ") + error.what());
  } catch (...) {
    add_failure(test, "exception of an unknown type out of the body");
  }
}

// From here on a program that the body starts would be a test program like any other.
void enter_body(const TestInfo& test) {
  for (const char* name : {kReportVariable, kNameVariable, kCallVariable}) {
    ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe): the only thread of ours
  }
  ::setenv(kBodyVariable, full_name(test).c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
}

// Runs the body, and then leaves the test as a failed assertion that throws would: what precedes
// the call is destroyed, and the fixture torn down, before the reporter ends the program.
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
  auto* const reporter = new ReportingListener(report, job->rank, test);
  listeners.Append(reporter);  // gtest owns it
  write_event(report, {.rank = job->rank, .kind = RankEvent::Kind::kStarted});
  reporter->tell();  // what has failed already, in the fixture or before this call
  enter_body(test);
  try {
    connect_and_run(*job, body, test);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a listener that throws, of a recorded failure
  }
  reporter->tell();
  if (!GTEST_FLAG_GET(catch_exceptions)) reporter->finish();
  reporter->skip_silently();  // or a test whose SetUp made the call would go on
  throw ::testing::AssertionException(TestPartResult(TestPartResult::kSkip, nullptr, -1, ""));
}

// --- in the parent -------------------------------------------------------------------------------

bool is_program(const fs::path& path) {
  std::error_code ignored;  // of a folder in PATH that may not be read
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
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

// dlaunch ... this program, with its own arguments but for gtest's, which are about the parent. One
// node, whatever an mpirun or a Slurm around it says. In a name that comes from a user's generator
// ':' and '-' would divide filters; a test that is chosen only by that does nothing.
std::vector<std::string> make_arguments(const fs::path& launcher, int workers,
                                        const TestInfo& test) {
  std::vector<std::string> arguments{launcher,  "--standalone",
                                     "--nproc", std::to_string(workers),
                                     "--",      fs::read_symlink("/proc/self/exe")};
  std::string pattern = full_name(test);
  std::replace_if(
      pattern.begin(), pattern.end(), [](char c) { return c == ':' || c == '-'; }, '?');
  arguments.push_back("--gtest_filter=" + pattern);
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

// Whether gtest reads it, to write files or to choose tests; or dlaunch in torchrun's place, which
// might restart what fails.
bool is_for_the_parent(std::string_view name) {
  return name.starts_with("PET_") || name.starts_with("GTEST_") ||
         name == "TEST_PREMATURE_EXIT_FILE" || name == "XML_OUTPUT_FILE" ||
         name == "TESTBRIDGE_TEST_ONLY";
}

// The parent's environment without what is for itself, and with `additions`, of which the last of a
// name counts.
std::vector<std::string> make_environment(
    const std::vector<std::pair<std::string, std::string>>& additions) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(additions.begin(), additions.end(),
                                      [&](const auto& addition) { return addition.first == name; });
    if (!replaced && !is_for_the_parent(name)) environment.emplace_back(text);
  }
  for (auto addition = additions.begin(); addition != additions.end(); ++addition) {
    const bool again = std::any_of(addition + 1, additions.end(), [&](const auto& later) {
      return later.first == addition->first;
    });
    if (!again) environment.push_back(addition->first + "=" + addition->second);
  }
  return environment;
}

// A death test of the style "threadsafe" runs its test again, in a process that has to come to the
// same statement: past what the parent has run on ranks, but never into a body.
bool is_death_test_again(const TestInfo& test) {
  if (!::testing::internal::InDeathTestChild()) return false;
  if (variable(kBodyVariable) == full_name(test)) {
    std::cerr << "dlaunch::testing: a death test in a body needs "
                 "GTEST_FLAG_SET(death_test_style, \"fast\")"
              << std::endl;
    ::_exit(1);
  }
  return true;
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
  additions.emplace_back(kNameVariable, full_name(test));
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
  if (!in_time) launcher->ask_where_ranks_are();
  launcher->stop();
  report_job(test, {.workers = workers,
                    .events = events,
                    .ended_in_time = in_time,
                    .deadline = options.deadline,
                    .exit_code = launcher->exit_code(),
                    .output = launcher->output()});
}

}  // namespace

void run_on_ranks(int workers, const RankBody& body, const RunOptions& options) {
  const TestInfo* test = UnitTest::GetInstance()->current_test_info();
  if (test == nullptr || workers < 1) {
    ADD_FAILURE() << (test == nullptr ? "run_on_ranks outside of a running test"
                                      : "run_on_ranks needs at least one worker, not " +
                                            std::to_string(workers));
    return;
  }
  static bool in_body = false;
  if (in_body) {
    ADD_FAILURE() << "run_on_ranks called from the body of run_on_ranks";
    return;
  }
  if (is_death_test_again(*test)) return;
  const int call = next_call(*test);
  if (variable(kReportVariable).empty()) {
    run_as_parent(workers, call, *test, options);
    return;
  }
  // Earlier calls are over: the parent has made them. Later ones are not reached.
  if (full_name(*test) != variable(kNameVariable) ||
      variable(kCallVariable) != std::to_string(call))
    return;
  in_body = true;
  run_as_rank(body, *test);
}

std::uint64_t run_seed() {
  static std::string of_process;  // drawn outside of a test, for what comes then too
  const TestInfo* test = UnitTest::GetInstance()->current_test_info();
  const char* drawn = test == nullptr ? nullptr : property(*test, kSeedProperty);
  std::string seed = drawn == nullptr ? variable(kSeedVariable) : drawn;
  if (seed.empty()) seed = of_process;
  if (seed.empty()) seed = std::to_string(std::random_device()());
  if (test == nullptr) {
    of_process = seed;
  } else {
    ::testing::Test::RecordProperty(kSeedProperty, seed);
  }
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(seed.data(), seed.data() + seed.size(), number);
  if (error != std::errc() || end != seed.data() + seed.size()) {
    throw std::invalid_argument(std::string(kSeedVariable) + ": '" + seed + "' is no number");
  }
  return number;
}

}  // namespace dlaunch::testing
