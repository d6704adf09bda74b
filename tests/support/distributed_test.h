// dlaunch::testing: GoogleTest tests whose body runs on several ranks, each a process of its own
// that dlaunch starts.
//
//   TEST(AllReduce, SumsTheRanks) {
//     dlaunch::testing::run_on_ranks(4, [](dlaunch::Communicator& world) {
//       std::vector<float> values{static_cast<float>(world.rank())};
//       ASSERT_TRUE(dlaunch::testing::succeeded(world.all_reduce(values)));
//       EXPECT_EQ(values[0], 0.0F + 1 + 2 + 3);
//     });
//   }
//
// How it works: the process that runs the tests (the parent) never runs the body. It starts
// `dlaunch --nproc N <this very program> --gtest_filter=<this very test>`; each rank runs the test
// up to the same call of run_on_ranks, connects the world, runs the body, reports, and leaves the
// test there by an exception of GoogleTest's. What precedes the call (SetUp, mocks, test
// parameters, local variables) therefore runs on every rank, may be captured, and is torn down and
// destroyed there as it is in the parent; what the body changes in captured variables stays in its
// process. So the call must not stand in a noexcept function, nor in a try block that catches
// everything. A test may call run_on_ranks several times, one job after the other, but not inside a
// body. A death test in a body needs the style "fast", which is GoogleTest's default.
//
// What the parent's test shows:
//   - every failed expectation, assertion or exception of any rank, at its file and line, as
//     "[rank 2 of 4] ..."; after a fatal one that rank's body ends and its communicator closes, so
//     that peers which still need it fail too instead of hanging;
//   - a rank that crashes or exits, with dlaunch's report;
//   - when the deadline passes, the ranks that did not finish, what each is doing, and, if gdb or
//     eu-stack is installed, where (dlaunch's hang report); the job is then ended;
//   - what the ranks wrote to stdout and stderr, if something failed or DLAUNCH_LOG is set.
// The test is skipped if every rank skips.
//
// The launcher is the first of: the environment variable DLAUNCH_EXECUTABLE, RunOptions::launcher
// (the build tree's or the installed package's dlaunch, through the CMake target dlaunch::testing),
// `dlaunch` beside the test program or one folder up, `dlaunch` in PATH.
//
// All functions are called from the thread that runs the test.
//
// After `using namespace dlaunch;` a plain `testing` is ambiguous: write ::testing for GoogleTest's
// and dlaunch::testing for this, or name what is used (`using dlaunch::Communicator;`) instead.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"

#ifndef DLAUNCH_TEST_LAUNCHER
#define DLAUNCH_TEST_LAUNCHER ""  // set by the CMake target dlaunch::testing
#endif

namespace dlaunch::testing {

struct RunOptions {
  /// From the start of the job to the exit of its last rank. Blocking calls of the communicators
  /// give up after three quarters of it (DLAUNCH_TIMEOUT), so that a rank which waits in vain can
  /// say for whom.
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  /// Set for the ranks, in addition to the parent's environment, of which they get all but the
  /// variables that GoogleTest reads (GTEST_*, TEST_PREMATURE_EXIT_FILE, XML_OUTPUT_FILE,
  /// TESTBRIDGE_TEST_ONLY) and those for torchrun (PET_*).
  std::vector<std::pair<std::string, std::string>> environment = {};
  /// Path of dlaunch; empty: look for it.
  std::string launcher = DLAUNCH_TEST_LAUNCHER;  // NOLINT(readability-redundant-string-init)
};

using RankBody = std::function<void(Communicator& world)>;

/// Runs `body` on `workers` ranks and waits for all of them. On a rank it does not return, but
/// throws out of the test.
void run_on_ranks(int workers, const RankBody& body, const RunOptions& options = {});

/// For EXPECT_TRUE and ASSERT_TRUE, which then say why: ASSERT_TRUE(succeeded(world.barrier())).
inline ::testing::AssertionResult succeeded(const Status& status) {
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status;
}
template <typename T>
::testing::AssertionResult succeeded(const Result<T>& result) {
  return succeeded(result.status());
}

/// A number for random inputs: fresh in every run of a test, but the same in the parent and on all
/// its ranks. Called outside of a test (SetUpTestSuite) it draws one for all tests that follow. A
/// failed test prints it; the environment variable DLAUNCH_TEST_SEED fixes it. Throws
/// std::invalid_argument if that is no number.
std::uint64_t run_seed();

/// A fixture for tests with the number of workers as their first parameter:
///
///   class Gather : public DistributedTestWith<std::size_t> {};         // workers, count
///   TEST_P(Gather, KeepsTheOrder) { run([count = std::get<1>(GetParam())](auto& world) {...}); }
///   INSTANTIATE_TEST_SUITE_P(Worlds, Gather, testing::Combine(Values(1, 2, 3), Values(0U, 7U)));
template <typename... Parameters>
class DistributedTestWith : public ::testing::TestWithParam<std::tuple<int, Parameters...>> {
 protected:
  int workers() const { return std::get<0>(this->GetParam()); }
  /// run_on_ranks with workers() ranks.
  void run(const RankBody& body, const RunOptions& options = {}) const {
    run_on_ranks(workers(), body, options);
  }
};

/// The same with the number of workers only: INSTANTIATE_TEST_SUITE_P(..., Values(1, 2, 4)).
using DistributedTest = DistributedTestWith<>;

}  // namespace dlaunch::testing
