// What a test program shows when something goes wrong on its ranks: runs the tests of
// failing_bodies.cc, which go wrong on purpose, and reads the output.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/temporary_folder.h"
#include "tests/support/launcher_process.h"

namespace dlaunch::testing {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = 0;
  std::string output;
  std::chrono::duration<double> time{};
};

Outcome run(const std::string& test, const std::vector<std::string>& more_environment = {}) {
  std::vector<std::string> environment = more_environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string(*entry).starts_with("GTEST_")) environment.emplace_back(*entry);
  }
  const auto start = std::chrono::steady_clock::now();
  auto program = LauncherProcess::start({FAILING_BODIES, "--gtest_filter=" + test}, environment);
  throw_if_error(program.status());
  EXPECT_TRUE(program->wait(Deadline::after(seconds(60)))) << "it hangs";
  program->stop();
  return {program->exit_code().value_or(-1), program->output(),
          std::chrono::steady_clock::now() - start};
}

MATCHER_P(Fails, matcher, "fails with output that fits") {
  *result_listener << "exit code " << arg.exit_code << ", output:\n" << arg.output;
  return arg.exit_code == 1 && ::testing::Value(arg.output, matcher);
}

MATCHER_P(Passes, matcher, "passes with output that fits") {
  *result_listener << "exit code " << arg.exit_code << ", output:\n" << arg.output;
  return arg.exit_code == 0 && ::testing::Value(arg.output, matcher);
}

TEST(ReportedFailures, TellRankFileLineAndMessage) {
  EXPECT_THAT(
      run("Failing.ExpectationOnOneRank"),
      Fails(AllOf(ContainsRegex("failing_bodies.cc:[0-9]+: Failure"), HasSubstr("[rank 2 of 4] "),
                  HasSubstr("two is \"too\" much"), Not(HasSubstr("[rank 1 of 4] ")),
                  HasSubstr("  | hello from rank 3"), ContainsRegex("DLAUNCH_TEST_SEED=[0-9]+"))));
}

TEST(ReportedFailures, AreAlsoThoseBeforeTheCall) {
  EXPECT_THAT(run("Failing.ExpectationBeforeTheCallOnARank"),
              Fails(AllOf(HasSubstr("[rank 0 of 2] "), HasSubstr("[rank 1 of 2] "),
                          HasSubstr("before the call"))));
}

TEST(ReportedFailures, AreThoseOfAllRanks) {
  const auto outcome = run("Failing.ExpectationsOnEveryRank");
  for (const char* rank : {"0", "1", "2"}) {
    const std::string name = std::string("[rank ") + rank + " of 3] ";
    const auto first = outcome.output.find(name);
    EXPECT_THAT(outcome, Fails(HasSubstr(name)));
    EXPECT_NE(outcome.output.find(name, first + 1), std::string::npos)
        << "the second expectation of rank " << rank << "\n"
        << outcome.output;
  }
}

TEST(ReportedFailures, OfAnAssertionStandBeforeThoseItCauses) {
  const auto outcome = run("Failing.AssertionWhilePeersWait");
  EXPECT_THAT(outcome, Fails(AllOf(HasSubstr("the root cause"), HasSubstr("[rank 0 of 3] "),
                                   HasSubstr("rank 2 came to its end"))));
  EXPECT_LT(outcome.output.find("the root cause"), outcome.output.find("[rank 0 of 3] "));
  EXPECT_LT(outcome.time, seconds(40)) << "peers must not wait for the deadline";
}

TEST(ReportedFailures, TellTheTextOfAnException) {
  EXPECT_THAT(run("Failing.Exception"),
              Fails(AllOf(HasSubstr("[rank 1 of 2] "), HasSubstr("thrown by rank 1"))));
}

TEST(ReportedFailures, TellOfACrash) {
  EXPECT_THAT(
      run("Failing.Crash"),
      Fails(AllOf(HasSubstr("exit code 134"), HasSubstr("rank 1 (in the body)"),
                  ContainsRegex("rank 1[^\n]*(SIGABRT|signal 6)"), HasSubstr("last words"))));
}

TEST(ReportedFailures, TellTheExitCodeOfARankThatExits) {
  EXPECT_THAT(run("Failing.ExitCode"),
              Fails(AllOf(HasSubstr("exit code 7"), HasSubstr("rank 1 (in the body)"),
                          HasSubstr("\n  dlaunch: "), Not(HasSubstr("What the ranks wrote")))))
      << "the ranks wrote nothing, and dlaunch's lines are told once";
}

TEST(ReportedFailures, TellOfARankThatLeavesTheBodyWithExitCodeZero) {
  EXPECT_THAT(run("Failing.EarlyExitWithSuccess"), Fails(HasSubstr("rank 1 (in the body)")));
}

TEST(ReportedFailures, NameTheRanksThatDidNotFinishInTime) {
  const auto outcome = run("Failing.Hang");
  EXPECT_THAT(outcome,
              Fails(AllOf(HasSubstr("the deadline of 10 s passed; not finished: rank 1 (in the "
                                    "body), rank 3 (in the body)\n"),
                          HasSubstr("dlaunch: what the ranks are doing (SIGQUIT):\n"),
                          HasSubstr("dlaunch: ranks 1, 3: in no collective"))));
  EXPECT_GE(outcome.time, seconds(10));
  EXPECT_LT(outcome.time, seconds(40));
}

TEST(ReportedFailures, NameTheRanksThatDidNotReachTheBodyInTime) {
  EXPECT_THAT(run("Failing.HangBeforeTheBody"), Fails(HasSubstr("rank 0 (not started)")));
}

TEST(ReportedFailures, TellOfMisuse) {
  EXPECT_THAT(run("Failing.CallWithinABody"),
              Fails(HasSubstr("run_on_ranks called from the body of run_on_ranks")));
  EXPECT_THAT(run("Failing.NoWorkers"), Fails(HasSubstr("at least one worker")));
  EXPECT_THAT(run("Failing.ExpectationOnOneRank", {"DLAUNCH_EXECUTABLE=/no/such/dlaunch"}),
              Fails(AllOf(HasSubstr("/no/such/dlaunch"), HasSubstr("set DLAUNCH_EXECUTABLE"))));
}

TEST(ReportedFailures, AreThoseOfTheCallThatFailed) {
  EXPECT_THAT(run("Failing.SecondCall"),
              Fails(AllOf(HasSubstr("[rank 0 of 2] "), HasSubstr("second job"),
                          Not(HasSubstr("first job")))));
}

TEST(ReportedFailures, AreThoseThatTheBodyOrAnotherListenerKeepsToItself) {
  EXPECT_THAT(run("Failing.AssertionThatTheBodySwallows"),
              Fails(AllOf(HasSubstr("[rank 1 of 2] "), HasSubstr("\nswallowed\n"),
                          HasSubstr("[rank 0 of 2] "), HasSubstr("not swallowed"),
                          Not(HasSubstr("exception")))));
}

TEST(ReportedFailures, TellOfWhatHappensAfterTheBody) {
  EXPECT_THAT(run("Failing.ExitCodeAtTheEnd"), Fails(HasSubstr("failed with exit code 7")));
  EXPECT_THAT(run("Failing.HangAtTheEnd"),
              Fails(AllOf(HasSubstr("the deadline of 6 s passed; all ranks came to the end"),
                          HasSubstr("  dlaunch: ended by SIGTERM; ranks: 1 ended"))));
}

TEST(ReportedFailures, SayThatSomeoneElseTookTheExitCode) {
  EXPECT_THAT(run("Failing.ExitCodeThatSomeoneElseTakes"),
              Fails(HasSubstr("exit code went to someone else: SIGCHLD is ignored")));
}

TEST(ReportedFailures, AreNotRestartedAway) {
  EXPECT_THAT(run("Failing.CrashOfTheFirstAttempt", {"PET_MAX_RESTARTS=3", "PET_NNODES=2"}),
              Fails(HasSubstr("exit code 134")));
}

TEST(ReportedFailures, OfATestWhoseNameIsNoPattern) {
  for (const char* type : {"std??int32_t", "low?precision"}) {
    EXPECT_THAT(run(std::string("Typed/") + type + ".Fails"),
                Fails(AllOf(HasSubstr("[rank 1 of 2] "), Not(HasSubstr("not started")))));
  }
}

TEST(ReportedFailures, SayWhichDeathTestsABodyMayHave) {
  EXPECT_THAT(run("Failing.DeathTestOfTheWrongStyle"),
              Fails(HasSubstr("a death test in a body needs GTEST_FLAG_SET(death_test_style")));
}

TEST(ReportedFailures, ShowTheEndOfALongOutput) {
  const auto outcome = run("Passing.AGreatDealOfOutput", {"FAIL=1"});
  EXPECT_THAT(outcome, Fails(HasSubstr("the last 64 KiB")));
  EXPECT_LT(outcome.output.size(), 200U << 10);
}

TEST(ReportedFailures, SayThatASeedIsNone) {
  EXPECT_THAT(run("Passing.Talkative", {"DLAUNCH_TEST_SEED=abc"}),
              Fails(HasSubstr("DLAUNCH_TEST_SEED: 'abc' is no number")));
}

// How many processes have begun, and how many have ended, what `name` marks.
std::pair<int, int> marks(const TemporaryFolder& folder, const std::string& name) {
  std::pair<int, int> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string file = entry.path().filename();
    if (file.starts_with(name + "-begun.")) ++found.first;
    if (file.starts_with(name + "-ended.")) ++found.second;
  }
  return found;
}

TEST(RanksAreTornDown, AsTheParentIs) {
  const TemporaryFolder folder;
  EXPECT_THAT(run("Torn.Down", {"MARKS=" + folder.path()}), Passes(HasSubstr("1 test")));
  for (const char* name : {"suite", "fixture", "local", "tear-down"}) {
    EXPECT_EQ(marks(folder, name), std::pair(3, 3)) << name;
  }
  EXPECT_THAT(run("CalledFromSetUp.*"), Passes(HasSubstr("1 test")));
}

TEST(RanksAreTornDown, AndWhatFailsThereIsReported) {
  const TemporaryFolder folder;
  const std::string set = "MARKS=" + folder.path();
  EXPECT_THAT(run("Torn.Down", {set, "FAIL_IN_TEAR_DOWN=1"}),
              Fails(AllOf(HasSubstr("[rank 0 of 2] "), HasSubstr("of the fixture"))));
  EXPECT_THAT(run("Torn.Down", {set, "FAIL_IN_SUITE=1"}),
              Fails(AllOf(HasSubstr("[rank 1 of 2] "), HasSubstr("of the suite"))));
  EXPECT_THAT(run("Torn.Down", {set, "FAIL_IN_MOCK=1"}),
              Fails(AllOf(HasSubstr("[rank 1 of 2] "), HasSubstr("never called"))));
}

TEST(PassingTests, MayHaveDeathTests) {
  EXPECT_THAT(run("Passing.DeathTests"), Passes(HasSubstr("1 test")));
}

TEST(PassingTests, MayStartTestPrograms) {
  EXPECT_THAT(run("Passing.TestProgramInABody"), Passes(HasSubstr("1 test")));
}

TEST(PassingTests, DoNotShowWhatTheirRanksWrite) {
  EXPECT_THAT(run("Passing.Talkative"), Passes(Not(HasSubstr("FAILED"))));
}

TEST(PassingTests, AreSkippedIfEveryRankSkips) {
  EXPECT_THAT(run("Passing.SkipOnEveryRank"),
              Passes(AllOf(HasSubstr("[  SKIPPED ] 1 test"), HasSubstr("no such device"))));
  EXPECT_THAT(run("Passing.SkipOnOneRank"), Passes(Not(HasSubstr("SKIPPED"))));
}

TEST(PassingTests, WriteNoReportsFromTheirRanks) {
  const TemporaryFolder folder;  // of which gtest makes a new name for each report
  EXPECT_THAT(run("Passing.Talkative", {"GTEST_OUTPUT=xml:" + folder.path() + "/"}),
              Passes(HasSubstr("1 test")));
  const std::filesystem::directory_iterator reports(folder.path());
  EXPECT_EQ(std::distance(begin(reports), end(reports)), 1) << "the parent's own";
}

}  // namespace
}  // namespace dlaunch::testing
