#include "tests/support/job_report.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string_view>

#include "tests/support/distributed_test.h"

namespace dlaunch::testing {
namespace {

using ::testing::TestPartResult;

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

// What is wrong with how the job ended, or nothing.
std::string wrong_end(const JobOutcome& job, const std::string& unfinished) {
  if (!job.ended_in_time) {
    std::ostringstream message;
    message << "the deadline of " << std::chrono::duration<double>(job.deadline).count()
            << " s passed; ";
    if (!unfinished.empty()) {
      message << "not finished: " << unfinished;
    } else {
      message << "all ranks came to the end of the test, but not all exited"
              << launcher_lines(job.output);
    }
    return message.str();
  }
  if (!job.exit_code) {
    return "the job's exit code went to someone else: SIGCHLD is ignored in this process, or a "
           "handler of it waits for all children";
  }
  if (*job.exit_code != 0) {
    return "the job failed with exit code " + std::to_string(*job.exit_code) +
           (unfinished.empty() ? "" : "; not finished: " + unfinished) + launcher_lines(job.output);
  }
  return unfinished.empty() ? ""
                            : "ranks exited with code 0 before the end of the body: " + unfinished;
}

}  // namespace

void add_failure(const ::testing::TestInfo& test, const std::string& message) {
  ADD_FAILURE_AT(test.file(), test.line()) << message;
}

void report_job(const ::testing::TestInfo& test, const JobOutcome& job) {
  repeat_failures(job.events, job.workers);
  const std::string wrong = wrong_end(job, unfinished_ranks(job.events, job.workers));
  if (!wrong.empty()) add_failure(test, wrong);
  if (::testing::Test::HasFailure()) {
    show_output(job.output, wrong.find(kLauncherPrefix) != std::string::npos);
    std::cout << "Repeat with the same random inputs: " << kSeedVariable << "=" << run_seed()
              << std::endl;
    return;
  }
  const char* log = std::getenv("DLAUNCH_LOG");  // NOLINT(concurrency-mt-unsafe): read only
  if (log != nullptr && *log != '\0') show_output(job.output, false);
  if (all_skipped(job.events, job.workers)) {
    const auto& first =
        *std::find_if(job.events.begin(), job.events.end(),
                      [](const RankEvent& event) { return event.kind == RankEvent::Kind::kSkip; });
    GTEST_MESSAGE_AT_(first.file.c_str(), first.line, first.message.c_str(), TestPartResult::kSkip);
  }
}

}  // namespace dlaunch::testing
