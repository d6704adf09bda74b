// What became of a multi-process test's job, shown as failures (or a skip) of the parent's test.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/rank_report.h"

namespace dlaunch::testing {

inline constexpr char kSeedVariable[] = "DLAUNCH_TEST_SEED";  // repeats a run: run_seed()

struct JobOutcome {
  int workers = 0;
  const std::vector<RankEvent>& events;
  bool ended_in_time = false;
  std::chrono::nanoseconds deadline{};
  std::optional<int> exit_code;  // LauncherProcess's
  std::string output;
};

/// A failure that is not of an expectation: at the test itself.
void add_failure(const ::testing::TestInfo& test, const std::string& message);

/// Called by the thread that runs the test.
void report_job(const ::testing::TestInfo& test, const JobOutcome& job);

}  // namespace dlaunch::testing
