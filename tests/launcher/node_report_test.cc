// What a node tells the others of a round that has ended, and its user.
#include <chrono>
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/failure/failure.h"
#include "launcher/failure/report.h"
#include "launcher/nodes/node_report.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using Cause = AttemptOutcome::Cause;

// As if the clock had been set back by an hour since.
TEST(EndedRecordOfAnAttempt, TellsTheAgeOfAFailureWhateverTheClockSays) {
  const auto before = std::chrono::steady_clock::now();
  AttemptOutcome attempt{.cause = Cause::kRankFailed, .first_failed = 0};
  attempt.failure = FailureRecord{.rank = 0, .host = "here", .exit_code = 3};
  attempt.ranks = {{.running = false,
                    .wait_status = 3 << 8,
                    .ended_at = std::chrono::system_clock::now() + 1h,
                    .ended = before - 1s}};
  const auto read = parse_record<EndedRecord>(to_text(ended_record(attempt)));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  const std::chrono::nanoseconds age(read->age_ns);
  EXPECT_GE(age, 1s);
  EXPECT_LE(age, 1s + (std::chrono::steady_clock::now() - before));
}

// What its ranks took to end is part of it.
TEST(EndedRecordOfAnAttempt, TellsSinceWhenANodeIsLeaving) {
  const auto before = std::chrono::steady_clock::now();
  for (const Cause cause : {Cause::kSignal, Cause::kTimeout}) {
    const AttemptOutcome attempt{.cause = cause, .end_began = before - 2s, .signal = SIGTERM};
    const std::chrono::nanoseconds age(ended_record(attempt).age_ns);
    EXPECT_GE(age, 2s);
    EXPECT_LE(age, 2s + (std::chrono::steady_clock::now() - before));
  }
}

// All ranks of several nodes may fail at once, and another node's report end the round before this
// node has told of its own.
class RankThatFailedAsARoundWasEnded : public ::testing::Test {
 protected:
  RankThatFailedAsARoundWasEnded() {
    attempt_.ranks = {{.rank = 2, .running = false, .wait_status = 4 << 8},
                      {.rank = 3, .running = false, .wait_status = SIGTERM, .signalled = true}};
    attempt_.failure = FailureRecord{.rank = 2, .host = "here", .exit_code = 4};
  }
  AttemptOutcome attempt_{.cause = Cause::kElsewhere, .first_failed = 0};
};

TEST_F(RankThatFailedAsARoundWasEnded, IsToldOfByItsOwnNodeIfItWasTheFirst) {
  take_verdict({.failure = serialize(*attempt_.failure)}, attempt_);
  EXPECT_EQ(attempt_.cause, Cause::kRankFailed);
  const auto lines = make_report(attempt_, false);
  EXPECT_THAT(lines, Contains(HasSubstr("dlaunch: rank 2 ")));
  EXPECT_THAT(lines, Contains(HasSubstr("failed with exit code 4")));
  EXPECT_THAT(lines, Contains("dlaunch: the other ranks: 3 ended by SIGTERM (collateral)"));
}

TEST_F(RankThatFailedAsARoundWasEnded, IsCollateralIfAnotherWasTheFirst) {
  const FailureRecord first{.rank = 0, .host = "there", .exit_code = 4};
  take_verdict({.failure = serialize(first)}, attempt_);
  EXPECT_EQ(attempt_.cause, Cause::kElsewhere);
  EXPECT_EQ(attempt_.failure_elsewhere->rank, 0);
  EXPECT_THAT(make_report(attempt_, false), Not(Contains(HasSubstr("dlaunch: rank 2 "))));
}

}  // namespace
}  // namespace dlaunch::testing
