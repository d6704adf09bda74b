// The decisions over an elastic job, without any I/O: nodes come and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/told_coordinator.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

using ElasticCoordinator = ToldCoordinator;

TEST_F(ElasticCoordinator, WaitsAMomentForMoreNodes) {
  start(2, 4);
  come(member("1"));
  come(member("2"));
  pass(1s);
  come(member("3"));
  pass(1500ms);
  EXPECT_FALSE(wrote(node_keys::kRound));
  pass(1s);
  EXPECT_EQ(ranks(), "1 2 3");
}

TEST_F(ElasticCoordinator, GoesOnWithTheSurvivorsWhoKeepTheirNumbers) {
  start(2, 3);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  leave("1");
  end("2", failed(1, 4));
  end("3", stopped());
  EXPECT_EQ(verdict().action, Action::kAgain);
  EXPECT_EQ(verdict().delay_ms, 0);
  pass(3s);
  EXPECT_EQ(round().number, 1);
  EXPECT_EQ(round().restarts, 0);  // a lost node costs an elastic job none
  EXPECT_EQ(ranks(), "3 2");       // node 1 is node 1 still
}

TEST_F(ElasticCoordinator, TakesInANodeWhileItRuns) {
  start(1, 2);
  come(member("1"));
  pass(3s);
  EXPECT_EQ(ranks(), "1");
  come(member("2"));
  EXPECT_THAT(stop().why, HasSubstr("joins"));
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kAgain);
  EXPECT_EQ(ranks(), "1 2");
}

TEST_F(ElasticCoordinator, DoesNotTakeInANodeBesideProcessesThatCouldNotBeKilled) {
  start(1, 2);
  come(member("1"));
  pass(3s);
  come(member("2"));
  end("1", {.how = How::kStopped, .leftovers = true});
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 125);
}

TEST_F(ElasticCoordinator, WaitsForMoreIfTooFewAreLeftAndThenFails) {
  start(2, 3);
  for (const char* id : {"1", "2"}) come(member(id));
  pass(3s);
  leave("1");
  end("2", stopped());
  EXPECT_EQ(text("nodes/waiting"), "waiting for 1 of 2:3 nodes; here: host-2");
  pass(61s);
  EXPECT_EQ(verdict().exit_code, 123);
}

TEST_F(ElasticCoordinator, IsEndedByASignalToTheNodeWithTheStoreBetweenTwoRounds) {
  start(1, 2);
  come(member("1"));
  come(member("2"));
  leave("2");
  end("1", stopped());  // and the next round is not there yet
  ASSERT_EQ(verdict().action, Action::kAgain);
  end("1", {.how = How::kSignal, .exit_code = 143, .error = "ended by SIGTERM"});
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 143);
  EXPECT_THAT(verdict().reason, HasSubstr("ended by SIGTERM"));
}

TEST_F(ElasticCoordinator, GoesOnWithoutANodeThatItsUserTakesOut) {
  start(1, 3, /*max_restarts=*/1);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  const EndedRecord interrupted{.how = How::kSignal, .exit_code = 143, .error = "ended by SIGTERM"};
  end("2", interrupted);
  EXPECT_EQ(stop().why, "node 1 (host-2 (pid 7)) has left the job: ended by SIGTERM");
  EXPECT_FALSE(wrote("nodes/refused/2"));
  end("1", stopped());
  end("3", stopped());
  EXPECT_EQ(verdict().action, Action::kAgain);
  EXPECT_EQ(verdict().reason, stop().why);
  end_in(0, "2", interrupted);  // what its dlaunch says once more when it goes
  leave("2");
  pass(3s);
  EXPECT_EQ(round().number, 1);
  EXPECT_EQ(round().restarts, 0);
  EXPECT_EQ(ranks(), "1 3");
}

TEST_F(ElasticCoordinator, DoesNotMissANodeWhoseRanksHadFinished) {
  start(1, 2);
  come(member("1"));
  come(member("2"));
  end("2", {.how = How::kFinished});
  leave("2");
  EXPECT_FALSE(wrote(node_keys::kStop));
  EXPECT_FALSE(wrote("nodes/refused/2"));
  end("1", {.how = How::kFinished});
  EXPECT_EQ(verdict().action, Action::kFinished);
  EXPECT_TRUE(verdict().lost.empty());
}

TEST_F(ElasticCoordinator, GoesOnWithoutANodeWhoseTimeIsUpOrThatCannotStart) {
  for (const How how : {How::kTimeout, How::kNotStarted}) {
    start(1, 2);
    come(member("1"));
    come(member("2"));
    end("2", {.how = how, .exit_code = 124, .error = "why"});
    end("1", stopped());
    EXPECT_EQ(verdict().action, Action::kAgain);
    pass(3s);
    EXPECT_EQ(ranks(), "1");
  }
}

TEST_F(ElasticCoordinator, IsEndedWhenSoManyNodesWantToLeaveThatTooFewAreLeft) {
  start(2, 3);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  const EndedRecord interrupted{.how = How::kSignal, .exit_code = 143, .error = "ended by SIGTERM"};
  end("2", interrupted);
  end("3", interrupted);
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 143);
  EXPECT_EQ(verdict().reason, "node 2 (host-3 (pid 7)): ended by SIGTERM");
}

TEST_F(ElasticCoordinator, IsEndedByASignalToTheNodeWithTheStore) {
  start(1, 3);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  end("1", {.how = How::kSignal, .exit_code = 143, .error = "ended by SIGTERM"});
  end("2", stopped());
  end("3", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 143);
}

TEST_F(ElasticCoordinator, ForgetsANewcomerThatIsInterruptedBeforeItsRound) {
  start(2, 3);
  come(member("1"));
  come(member("2"));
  pass(3s);
  come(member("3"));
  end_in(-1, "3", {.how = How::kSignal, .exit_code = 130, .error = "ended by SIGINT"});
  leave("3");
  end("1", stopped());
  end("2", stopped());
  EXPECT_EQ(verdict().action, Action::kAgain);
  EXPECT_THAT(verdict().reason, Not(HasSubstr("-1")));
  pass(3s);
  EXPECT_EQ(ranks(), "1 2");
}

TEST_F(ElasticCoordinator, SaysThatItHasEnoughNodesAndWaitsForMore) {
  start(1, 3);
  come(member("1"));
  EXPECT_EQ(text("nodes/waiting"), "waiting for further nodes of 1:3; here: host-1");
}

}  // namespace
}  // namespace dlaunch::testing
