// The decisions over an elastic job, without any I/O: nodes come and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/told_coordinator.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
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
  EXPECT_TRUE(round().restarted);
  EXPECT_EQ(ranks(), "3 2");  // node 1 is node 1 still
  end("2", {.how = How::kFinished});
  end("3", {.how = How::kFinished});
  EXPECT_EQ(verdict().action, Action::kFinished);  // what was lost before is made good
  EXPECT_TRUE(verdict().lost.empty());
}

TEST_F(ElasticCoordinator, ANewcomerDoesNotGetANumberThatAnotherHas) {
  start(1, 3);
  come(member("1"));
  come(member("2"));
  pass(3s);
  come(member("3", 1, 0));
  end("1", stopped());
  end("2", stopped());
  EXPECT_EQ(ranks(), "1 2 3");
}

TEST_F(ElasticCoordinator, ARoundAfterOneWhoseRanksWereNotReadyYetIsNoRestart) {
  start(1, 3);
  come(member("1"));
  pass(3s);
  EXPECT_FALSE(round().restarted);
  come(member("2"));
  end("1", {.how = How::kStopped, .got_ready = false});
  pass(3s);
  EXPECT_EQ(ranks(), "1 2");
  EXPECT_FALSE(round().restarted);
  come(member("3"));
  end("1", stopped());
  end("2", stopped());
  EXPECT_TRUE(round().restarted);
}

TEST_F(ElasticCoordinator, AFailureInTheRoundOfANewcomerIsAFailure) {
  start(1, 2);
  come(member("1"));
  pass(3s);
  come(member("2"));
  end("1", stopped());
  ASSERT_EQ(ranks(), "1 2");
  pass(1s);
  end("2", failed(1, 7));
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 7);
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

// Nodes hear of the stop at different times: ranks of one lose their peers on another first.
TEST_F(ElasticCoordinator, ANewcomerIsTheReasonAlsoWhereRanksSufferFromTheStop) {
  for (const int code : {4, 1}) {  // of our ranks, and of a PyTorch program's
    start(2, 3);
    come(member("1"));
    come(member("2"));
    pass(3s);
    come(member("3"));
    pass(20ms);
    end("2", failed(1, code, 5ms));
    end("1", stopped());
    EXPECT_EQ(verdict().action, Action::kAgain) << code;
    EXPECT_EQ(verdict().reason, "a node joins the job");
    EXPECT_EQ(verdict().failure, "");
    EXPECT_EQ(verdict().delay_ms, 0);
    EXPECT_EQ(ranks(), "1 2 3");
    EXPECT_EQ(round().restarts, 0);
  }
}

// It is told only when the other ranks of its node have ended.
TEST_F(ElasticCoordinator, AFailureBeforeANewcomerIsAFailureStill) {
  for (const int restarts : {0, 1}) {
    start(2, 3, restarts);
    come(member("1"));
    come(member("2"));
    pass(3s);
    come(member("3"));
    end("2", failed(1, 7, 1s));
    end("1", stopped());
    EXPECT_EQ(verdict().action, restarts == 0 ? Action::kFailed : Action::kAgain);
    EXPECT_EQ(verdict().exit_code, 7);
    EXPECT_EQ(verdict().delay_ms, restarts * 1000);
  }
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
  EXPECT_EQ(verdict().exit_code, 122);
}

TEST_F(ElasticCoordinator, IsEndedByASignalToTheNodeWithTheStoreBetweenTwoRounds) {
  start(1, 2);
  come(member("1"));
  come(member("2"));
  leave("2");
  end("1", stopped());  // and the next round is not there yet
  ASSERT_EQ(verdict().action, Action::kAgain);
  end("1", interrupted());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 143);
  EXPECT_THAT(verdict().reason, HasSubstr("ended by SIGTERM"));
}

TEST_F(ElasticCoordinator, GoesOnWithoutANodeThatItsUserTakesOut) {
  start(1, 3, /*max_restarts=*/1);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  end("2", interrupted());
  EXPECT_EQ(stop().why, "node 1 (host-2 (pid 7)) has left the job: ended by SIGTERM");
  EXPECT_FALSE(wrote("nodes/refused/2"));
  end("1", stopped());
  end("3", stopped());
  EXPECT_EQ(verdict().action, Action::kAgain);
  EXPECT_EQ(verdict().reason, stop().why);
  end_in(0, "2", interrupted());  // what its dlaunch says once more when it goes
  leave("2");
  pass(3s);
  EXPECT_EQ(round().number, 1);
  EXPECT_EQ(round().restarts, 0);
  EXPECT_EQ(ranks(), "1 3");
}

// The ranks of the others lose a peer when the first one of the node goes; the node tells that it
// leaves when its last one has.
TEST_F(ElasticCoordinator, GoesOnWithoutANodeWhoseRanksTakeTheirTimeToEnd) {
  for (const How how : {How::kSignal, How::kTimeout}) {
    for (const int code : {4, 1}) {
      start(1, 3);
      for (const char* id : {"1", "2", "3"}) come(member(id));
      pass(1s);
      end("1", failed(0, code));
      pass(2s);
      end("2", {.how = how, .age_ns = nanoseconds(2010ms).count(), .exit_code = 143});
      end("3", stopped());
      EXPECT_EQ(verdict().action, Action::kAgain) << code;
      EXPECT_EQ(verdict().delay_ms, 0);
      pass(3s);
      EXPECT_EQ(ranks(), "1 3");
      EXPECT_EQ(round().restarts, 0);
    }
  }
}

TEST_F(ElasticCoordinator, AFailureBeforeANodeWasToldToLeaveIsAFailureStill) {
  start(1, 3);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  pass(1s);
  end("1", failed(0, 7));
  pass(2s);
  end("2", {.how = How::kSignal, .age_ns = nanoseconds(1s).count(), .exit_code = 143});
  end("3", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 7);
}

// The one that tells it last was the first to go.
TEST_F(ElasticCoordinator, GoesOnWithoutSeveralNodesOfWhichTheSlowestWasTheFirst) {
  start(1, 3);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  pass(4s);
  end("1", failed(0, 1, 2s));
  end("2", {.how = How::kSignal, .age_ns = nanoseconds(1s).count(), .exit_code = 143});
  end("3", {.how = How::kSignal, .age_ns = nanoseconds(3s).count(), .exit_code = 143});
  EXPECT_EQ(verdict().action, Action::kAgain);
  pass(3s);
  EXPECT_EQ(ranks(), "1");
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
  end("2", interrupted());
  end("3", interrupted());
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 143);
  EXPECT_EQ(verdict().reason, "node 2 (host-3 (pid 7)): ended by SIGTERM");
}

TEST_F(ElasticCoordinator, IsEndedByASignalToTheNodeWithTheStore) {
  start(1, 3);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  end("1", interrupted());
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

// Nobody is disturbed for it a second time.
TEST_F(ElasticCoordinator, ANewcomerThatComesWhileRanksEndTakesPartInTheNextRound) {
  start(1, 4, /*max_restarts=*/1);
  for (const char* id : {"1", "2"}) come(member(id));
  pass(3s);
  end("2", failed(1, 7));
  const std::string why = stop().why;
  come(member("3"));
  EXPECT_EQ(stop().why, why);
  end("1", stopped());
  EXPECT_EQ(verdict().exit_code, 7);
  EXPECT_EQ(verdict().delay_ms, 1000);
  pass(3s);
  EXPECT_EQ(ranks(), "1 2 3");
  EXPECT_EQ(round().restarts, 1);
}

TEST_F(ElasticCoordinator, ANewcomerThatComesWhileAJobFailsDoesNotSaveIt) {
  start(1, 3);
  for (const char* id : {"1", "2"}) come(member(id));
  pass(3s);
  end("2", failed(1, 7));
  come(member("3"));
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 7);
}

TEST_F(ElasticCoordinator, TakesInOneOfTwoNewcomersWhereThereIsRoomForOne) {
  start(1, 2);
  come(member("1"));
  pass(3s);
  come(member("2"));
  come(member("3"));
  lives("1");
  lives("2");
  EXPECT_THAT(text("nodes/refused/3"), HasSubstr("host-3 (pid 7) is surplus"));
  EXPECT_FALSE(wrote("nodes/refused/2"));
  end("1", stopped());
  EXPECT_EQ(ranks(), "1 2");
}

TEST_F(ElasticCoordinator, ANewcomerMayComeBeforeTheOneWhosePlaceItTakesIsMissed) {
  start(1, 2);
  come(member("1"));
  come(member("2"));
  EXPECT_EQ(ranks(), "1 2");
  come(member("3"));
  lives("1");
  EXPECT_FALSE(wrote("nodes/refused/3"));
  leave("2", "no sign of life for 4.0 s");
  EXPECT_FALSE(wrote("nodes/refused/3"));
  end("1", stopped());
  EXPECT_EQ(ranks(), "1 3");
  EXPECT_EQ(verdict().reason, "node 1 (host-2 (pid 7)) is lost: no sign of life for 4.0 s");
}

TEST_F(ElasticCoordinator, SaysThatItHasEnoughNodesAndWaitsForMore) {
  start(1, 3);
  come(member("1"));
  EXPECT_EQ(text("nodes/waiting"), "waiting for further nodes of 1:3; here: host-1");
}

}  // namespace
}  // namespace dlaunch::testing
