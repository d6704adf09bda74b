// The decisions over nodes that are silent, lost or told to end when none of their ranks run any
// more, without any I/O.
#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/nodes/node_report.h"
#include "runtime/base/exit_codes.h"
#include "tests/launcher/told_coordinator.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using SilentNodes = ToldCoordinator;
using LeavingNodes = ToldCoordinator;

TEST_F(SilentNodes, TakePartAgainWhereTheJobIsNotComplete) {
  start(3, 3);
  for (const char* id : {"1", "2"}) come(member(id));
  fall_silent("2");
  EXPECT_EQ(text("nodes/waiting"), "waiting for 2 of 3 nodes; here: host-1");
  EXPECT_FALSE(wrote("nodes/refused/2"));
  lives("2");
  EXPECT_EQ(text("nodes/waiting"), "waiting for 1 of 3 nodes; here: host-1, host-2");
  come(member("3"));
  EXPECT_EQ(ranks(), "1 2 3");
}

TEST_F(SilentNodes, AreGoneOnceTheirConnectionIs) {
  start(2, 2);
  for (const char* id : {"1", "2"}) come(member(id, 1, 1));  // the second one waits for a place
  fall_silent("2");
  leave("2");
  lives("2");
  leave("1");
  come(member("3", 1, 0));
  EXPECT_FALSE(wrote("nodes/round"));
  EXPECT_FALSE(wrote("nodes/refused/2"));
}

TEST_F(SilentNodes, WaitOnForAPlaceWhenTheyGiveASignOfLife) {
  start(2, 2);
  for (const char* id : {"1", "2"}) come(member(id, 1, 1));
  fall_silent("2");
  lives("2");
  leave("1");
  come(member("3", 1, 0));
  EXPECT_EQ(ranks(), "3 2");
}

TEST_F(SilentNodes, AreLostWhereTheirRanksRun) {
  start(2, 2);
  for (const char* id : {"1", "2"}) come(member(id));
  fall_silent("2");
  lives("2");
  EXPECT_THAT(text("nodes/refused/2"), HasSubstr("this node was taken for lost"));
  end("1", stopped());
  EXPECT_EQ(verdict().exit_code, kLauncherNodeLost);
}

// Whatever others do then, its ranks have ended well, and nobody's are disturbed for it.
TEST_F(SilentNodes, HaveFinishedStillWhereTheirRanksHave) {
  for (const int most : {2, 3}) {
    start(2, most, /*max_restarts=*/1);
    for (const char* id : {"1", "2"}) come(member(id));
    pass(3s);
    end("2", {.how = How::kFinished});
    const std::string stop = text("nodes/stop");
    fall_silent("2");
    lives("2");
    EXPECT_FALSE(wrote("nodes/refused/2"));
    EXPECT_EQ(text("nodes/stop"), stop);
    end("1", failed(0, 3));
    EXPECT_EQ(verdict().action, Action::kAgain);
    EXPECT_EQ(verdict().missing, 0);
    pass(4s);
    EXPECT_EQ(ranks(), "1 2");
    EXPECT_EQ(round().number, 1);
    for (const char* id : {"1", "2"}) end(id, {.how = How::kFinished});
    EXPECT_EQ(verdict().action, Action::kFinished);
  }
}

TEST_F(SilentNodes, TakePartInARestartAlsoIfTheyLiveAgainOnlyThen) {
  start(2, 2, /*max_restarts=*/1);
  for (const char* id : {"1", "2"}) come(member(id));
  end("2", {.how = How::kFinished});
  fall_silent("2");
  end("1", failed(0, 3));
  EXPECT_EQ(verdict().missing, 1);
  pass(2s);
  lives("2");
  EXPECT_EQ(ranks(), "1 2");
  EXPECT_EQ(round().number, 1);
}

TEST_F(SilentNodes, KeepTheirNumbers) {
  start(2, 3, /*max_restarts=*/1);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  end("1", failed(0, 3));
  end("2", stopped());
  end("3", stopped());
  fall_silent("2");
  lives("2");
  pass(4s);
  EXPECT_EQ(round().number, 1);
  EXPECT_EQ(ranks(), "1 2 3");
}

// What a node says may be seen before its next heartbeat is.
TEST_F(SilentNodes, AreHeardWhenTheySpeak) {
  for (const bool finished : {true, false}) {
    start(2, 2, /*max_restarts=*/1);
    for (const char* id : {"1", "2"}) come(member(id));
    if (finished) {
      end("2", {.how = How::kFinished});
    } else {
      end("2", failed(1, 3));
      end("1", stopped());
      EXPECT_EQ(verdict().action, Action::kAgain);
    }
    fall_silent("2");
    end_in(-1, "2", interrupted());
    if (finished) end("1", stopped());
    EXPECT_EQ(verdict().action, Action::kFailed);
    EXPECT_EQ(verdict().exit_code, 143);
  }
}

TEST_F(SilentNodes, AreNotNamedAsLostOnceTheyAreBack) {
  start(3, 3, /*max_restarts=*/1);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  end("1", failed(0, 3));
  end("2", stopped());
  end("3", stopped());
  fall_silent("2");
  leave("3");
  lives("2");
  pass(62s);
  EXPECT_EQ(verdict().exit_code, kLauncherNodeLost);
  EXPECT_THAT(verdict().reason, HasSubstr("node 2 (host-3 (pid 7)) is lost"));
  EXPECT_THAT(verdict().reason, Not(HasSubstr("node 1 (host-2 (pid 7)) is lost")));
}

TEST_F(SilentNodes, AreSurplusWhereAnotherHasTakenTheirPlace) {
  start(2, 2, /*max_restarts=*/1);
  for (const char* id : {"1", "2"}) come(member(id));
  end("2", {.how = How::kFinished});
  fall_silent("2");
  come(member("3"));
  lives("2");
  lives("1");
  lives("3");
  EXPECT_THAT(text("nodes/refused/2"), HasSubstr("host-2 (pid 7) is surplus"));
  end("1", failed(0, 3));
  pass(2s);
  EXPECT_EQ(ranks(), "1 3");
}

// Between two rounds, or before the first.
TEST_F(LeavingNodes, AreNotWaitedForOverTheLimitWhereEnoughAreLeft) {
  start(2, 3);
  come(member("1"));
  pass(59s);
  come(member("2"));
  EXPECT_FALSE(wrote("nodes/round"));  // there may come a third one
  pass(1500ms);
  EXPECT_EQ(ranks(), "1 2");
}

TEST_F(LeavingNodes, AreNamedWhereNobodyComesInTheirPlace) {
  start(2, 2, /*max_restarts=*/1);
  for (const char* id : {"1", "2"}) come(member(id));
  end("1", failed(0, 3));
  end("2", stopped());
  leave("2");
  pass(62s);
  EXPECT_EQ(verdict().exit_code, kLauncherNodeLost);
  EXPECT_THAT(verdict().reason, AllOf(HasSubstr("only 1 of 2 nodes came within 60 s"),
                                      HasSubstr("node 1 (host-2 (pid 7)) is lost: its dlaunch")));
}

TEST_F(LeavingNodes, AreReplacedWhereRestartsAreLeftAlsoBeforeRanksAreReady) {
  start(2, 2, /*max_restarts=*/1);
  for (const char* id : {"1", "2"}) come(member(id));
  leave("2");
  end("1", {.how = How::kStopped, .got_ready = false});
  EXPECT_EQ(verdict().action, Action::kAgain);
  come(member("3"));
  pass(2s);
  EXPECT_EQ(ranks(), "1 3");
  EXPECT_EQ(round().restarts, 1);
}

TEST_F(LeavingNodes, HaveTheJobEndWithWhatEndedItsRanksInsteadOfARestart) {
  for (const How how : {How::kStopped, How::kFinished}) {
    start(3, 3, /*max_restarts=*/3);
    for (const char* id : {"1", "2", "3"}) come(member(id));
    end("1", failed(0, 3));
    end("2", {.how = how, .got_ready = true});
    end("2", interrupted());
    end("3", stopped());
    EXPECT_EQ(verdict().action, Action::kFailed);
    EXPECT_EQ(verdict().exit_code, 3);
    EXPECT_EQ(parse_failure(verdict().failure)->rank, 0);
    EXPECT_EQ(verdict().reason, "no restart: node 1 (host-2 (pid 7)): ended by SIGTERM");
  }
}

TEST_F(LeavingNodes, EndAnElasticJobThatWaitsForItsRanksToStartThemWithANewcomer) {
  start(1, 3);
  for (const char* id : {"1", "2"}) come(member(id));
  pass(3s);
  come(member("3"));
  end("1", stopped());  // the node with the store
  end("1", interrupted());
  end("2", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 143);
}

// One has left by itself, and then so few are left that the next one ends the job.
TEST_F(LeavingNodes, AreNotLostForTheNextOneThatLeaves) {
  start(2, 3);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  end("3", interrupted());
  end("2", stopped());
  end("2", interrupted());
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 143);
}

TEST_F(LeavingNodes, AreNamedAlsoWhereTheirRanksHadEnded) {
  start(2, 2, /*max_restarts=*/1);
  for (const char* id : {"1", "2"}) come(member(id));
  end("2", {.how = How::kFinished});
  leave("2");
  end("1", failed(0, 3));
  pass(62s);
  EXPECT_EQ(verdict().exit_code, kLauncherNodeLost);
  EXPECT_THAT(verdict().reason, HasSubstr("node 1 (host-2 (pid 7)) is lost: its dlaunch"));
}

TEST_F(LeavingNodes, LeaveAnElasticJobThatStartsAgainWithoutThem) {
  start(1, 3);
  for (const char* id : {"1", "2"}) come(member(id));
  pass(3s);
  come(member("3"));
  end("2", stopped());
  end("2", interrupted());
  leave("2");
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kAgain);
  pass(3s);
  EXPECT_EQ(ranks(), "1 3");
}

TEST_F(LeavingNodes, EndAnElasticJobWellWhereTheRanksOfAllEndWell) {
  for (const int elsewhere : {0, 7}) {
    start(1, 3);
    for (const char* id : {"1", "2"}) come(member(id));
    pass(3s);
    end("2", interrupted(elsewhere));
    end("1", interrupted(0));
    EXPECT_EQ(verdict().action, Action::kFailed);
    EXPECT_EQ(verdict().exit_code, elsewhere);
  }
}

TEST_F(LeavingNodes, DoNotHaveRanksRunAgainThatHaveAllFinished) {
  start(1, 3);
  for (const char* id : {"1", "2"}) come(member(id));
  pass(3s);
  end("1", {.how = How::kFinished});
  come(member("3"));
  end("2", {.how = How::kFinished});  // before it heard of that
  EXPECT_EQ(verdict().action, Action::kFinished);
  EXPECT_EQ(verdict().exit_code, 0);
}

TEST_F(LeavingNodes, TellANewcomerWhatItWaitsFor) {
  start(1, 4);
  come(member("1"));
  pass(3s);
  EXPECT_FALSE(wrote("nodes/waiting"));
  for (const std::string id : {"2", "3"}) {  // the first, and one that comes meanwhile
    come(member(id));
    EXPECT_EQ(text("nodes/waiting"),
              "node host-" + id + " (pid 7) takes part once the ranks of all nodes have ended");
  }
}

// Who ends the waiting for the others takes the store away.
TEST_F(LeavingNodes, TellWhatHasEndedTheJobWhenTheStoreGoesBeforeAllRanksHaveEnded) {
  for (const bool failure : {true, false}) {
    start(1, 3);
    for (const char* id : {"1", "2"}) come(member(id));
    pass(3s);
    if (!failure) come(member("3"));
    end("1", failure ? failed(0, 7) : stopped());
    end("1", interrupted());
    coordinator_->give_up();
    pass(0s);
    EXPECT_EQ(verdict().action, Action::kFailed);
    EXPECT_EQ(verdict().exit_code, failure ? 7 : 143);
  }
}

}  // namespace
}  // namespace dlaunch::testing
