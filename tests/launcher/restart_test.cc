// Starting the whole job again after a failure.
#include <algorithm>
#include <csignal>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/ranks/free_port.h"
#include "launcher/supervision/restart_policy.h"
#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Ready at once, and restarted at once.
Strings with_restarts(int most, int ranks) {
  return {"--nproc",         std::to_string(ranks),
          "--max-restarts",  std::to_string(most),
          "--ready-after",   "0",
          "--restart-delay", "0"};
}

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.find(part) != std::string::npos) found.push_back(line);
  }
  return found;
}

TEST(RestartDelay, DoublesUpToAMinute) {
  using namespace std::chrono_literals;
  EXPECT_EQ(restart_delay(1s, 0), 1s);
  EXPECT_EQ(restart_delay(1s, 1), 2s);
  EXPECT_EQ(restart_delay(1s, 5), 32s);
  EXPECT_EQ(restart_delay(1s, 6), 60s);
  EXPECT_EQ(restart_delay(1s, 1'000'000), 60s);
  EXPECT_EQ(restart_delay(0s, 1'000'000), 0s);
  EXPECT_EQ(restart_delay(1ns, 1'000'000), 60s);
}

TEST(RestartDelay, StaysWhereTheUserWantsLongerThanAMinute) {
  constexpr std::chrono::hours kYear{366 * 24};
  for (const int before : {0, 1, 20, 1'000'000}) {
    EXPECT_EQ(restart_delay(kYear, before), kYear) << before;
  }
}

TEST(Restart, OfAllRanksLetsAJobSucceedInItsSecondAttempt) {
  const auto result = run_command(
      ranks_that({"env=TORCHELASTIC_RESTART_COUNT", "env=TORCHELASTIC_MAX_RESTARTS",
                  "env=DLAUNCH_RESTARTED", "only=1", "fail-before=1", "only=0", "env=RANK"},
                 with_restarts(3, 2)));
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("1 TORCHELASTIC_RESTART_COUNT=0\n"));
  EXPECT_THAT(result.out, HasSubstr("0 TORCHELASTIC_RESTART_COUNT=1\n"));
  EXPECT_THAT(result.out, HasSubstr("1 TORCHELASTIC_RESTART_COUNT=1\n"));
  EXPECT_THAT(result.out, HasSubstr("1 DLAUNCH_RESTARTED=0\n"));
  EXPECT_THAT(result.out, HasSubstr("1 DLAUNCH_RESTARTED=1\n"));
  EXPECT_THAT(result.out, HasSubstr("1 TORCHELASTIC_MAX_RESTARTS=3\n"));
  EXPECT_THAT(result.error, HasSubstr("dlaunch: rank 1 "));
  EXPECT_THAT(result.error, HasSubstr("dlaunch: restart 1 of 3 in "));
  EXPECT_THAT(result.error, Not(HasSubstr("restart 2 of 3")));
}

TEST(Restart, EndsWithTheLastFailureWhenAllRestartsAreUsed) {
  const auto result =
      run_command(ranks_that({"out=attempt", "fail-before=2", "exit=9"}, with_restarts(2, 1)));
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_EQ(result.out, "attempt\nattempt\nattempt\n");
  EXPECT_THAT(result.error, HasSubstr("dlaunch: no restart: 2 of 2 restarts used\n"));
}

TEST(Restart, GivesEveryAttemptAStoreAndASecretOfItsOwn) {
  const auto result = run_command(ranks_that(
      {"env=DLAUNCH_TOKEN", "env=DLAUNCH_JOB_ID", "fail-before=2"}, with_restarts(5, 1)));
  EXPECT_EQ(result.exit_code, 0) << result.error;
  const auto tokens = lines_with(result.out, "DLAUNCH_TOKEN");
  EXPECT_EQ(std::set<std::string>(tokens.begin(), tokens.end()).size(), 3U);
  const auto jobs = lines_with(result.out, "DLAUNCH_JOB_ID");
  EXPECT_EQ(jobs.size(), 3U);
  EXPECT_EQ(std::set<std::string>(jobs.begin(), jobs.end()).size(), 1U);
}

TEST(Restart, UsesTheSameStorePortAgainIfTheUserChoseIt) {
  Strings options = with_restarts(2, 2);
  options.insert(options.end(), {"--port", std::to_string(*find_free_port())});
  const auto result = run_command(ranks_that({"fail-before=2"}, options));
  EXPECT_EQ(result.exit_code, 0) << result.error;
}

TEST(Restart, DoesNotHappenBeforeTheJobWasReady) {
  const auto result = run_command(ranks_that(
      {"out=attempt", "exit=9"}, {"--nproc", "1", "--max-restarts", "3", "--ready-after", "50"}));
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_EQ(result.out, "attempt\n");
  EXPECT_THAT(result.error, HasSubstr("dlaunch: no restart: the job never got ready"));
}

TEST(Restart, HappensBeforeAnAttemptIsReadyIfAnEarlierOneWas) {
  const auto result = run_command(
      {.arguments = {built_program("dlaunch"), "--nproc", "1", "--max-restarts", "3",
                     "--ready-after", "0.2", "--restart-delay", "0", "--", "/bin/sh", "-c",
                     "case $TORCHELASTIC_RESTART_COUNT in 0) sleep 1; exit 3;; 1) exit 3;; esac"}});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.error, HasSubstr("dlaunch: restart 2 of 3 "));
}

TEST(Restart, DoesNotHappenAfterASignalThatTheRanksHaveHeeded) {
  const std::string signal = std::to_string(SIGUSR1);
  const std::string code = std::to_string(128 + SIGUSR1);
  Subprocess job(ranks_that({"await=" + signal, "exit=" + code}, with_restarts(3, 2)));
  for (const char* waits : {"0 waits\n", "1 waits\n"})
    ASSERT_TRUE(job.wait_for_output(waits, soon()));
  job.send_signal(SIGUSR1);
  job.send_signal(SIGCONT);  // as `fg` does after Ctrl-Z
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, 128 + SIGUSR1);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: no restart: the job has ended after SIGUSR1, "));
}

TEST(Restart, DoesNotHappenByDefault) {
  const auto result = run_command(ranks_that({"out=attempt", "exit=9"}, 1));
  EXPECT_EQ(result.out, "attempt\n");
  EXPECT_THAT(result.error, Not(HasSubstr("restart")));
}

TEST(Restart, LeavesNothingOfTheAttemptBefore) {
  const std::string mark = fresh_mark();
  Subprocess job(ranks_that({mark, "family", "fail-before=1", "out={rank} second", "pause"},
                            with_restarts(1, 2)));
  ASSERT_TRUE(job.wait_for_output("0 second\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 second\n", soon()));
  EXPECT_EQ(processes_with(mark).size(), 2U * 3U + 2U);  // and dlaunch's two
  job.send_signal(SIGTERM);
  job.finish(soon());
  EXPECT_TRUE(processes_with(mark).empty());
}

class BetweenAttempts : public ::testing::TestWithParam<int> {};

TEST_P(BetweenAttempts, ASignalEndsTheJob) {
  Subprocess job(ranks_that({"fail-before=1"}, {"--nproc", "2", "--max-restarts", "1",
                                                "--ready-after", "0", "--restart-delay", "50"}));
  ASSERT_TRUE(job.wait_for_error("dlaunch: restart 1 of 1 in 50 s\n", soon()));
  job.send_signal(GetParam());
  EXPECT_EQ(job.finish(soon()).exit_code, 3);
}

INSTANTIATE_TEST_SUITE_P(Signals, BetweenAttempts, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(Restart, DoesNotHappenWhenTheTimeoutWillHavePassed) {
  const auto result = run_command(
      ranks_that({"fail-before=1"}, {"--nproc", "2", "--max-restarts", "1", "--ready-after", "0",
                                     "--restart-delay", "50", "--timeout", "40"}));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: no restart: --timeout will have passed"));
}

}  // namespace
}  // namespace dlaunch::testing
