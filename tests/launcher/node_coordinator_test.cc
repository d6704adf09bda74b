// The decisions over several nodes, without any I/O: what happens goes in, keys come out.
#include <chrono>
#include <csignal>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/nodes/node_report.h"
#include "runtime/base/exit_codes.h"
#include "tests/launcher/told_coordinator.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

using NodeCoordinatorTest = ToldCoordinator;

TEST_F(NodeCoordinatorTest, StartsOnceAllAreThereAndNumbersTheRanks) {
  start(3, 3);
  come(member("1", 2));
  come(member("2", 1));
  EXPECT_FALSE(wrote(node_keys::kRound));
  EXPECT_EQ(text("nodes/waiting"), "waiting for 1 of 3 nodes; here: host-1, host-2");
  come(member("3", 4));
  const RoundRecord begun = round();
  EXPECT_EQ(begun.number, 0);
  EXPECT_EQ(begun.world, 7);
  EXPECT_EQ(begun.job_id, "job");
  EXPECT_EQ(ranks(), "1 2 3");
  EXPECT_EQ(begun.nodes[2].first_rank, 3);
  EXPECT_EQ(begun.master_address, "10.0.0.1");
  EXPECT_EQ(begun.master_port, 4000);
}

TEST_F(NodeCoordinatorTest, GivesNodesTheNumbersThatTheyWant) {
  start(3, 3);
  come(member("1"));
  come(member("2", 1, 0));
  come(member("3", 1, 2));
  EXPECT_EQ(ranks(), "2 1 3");
  EXPECT_EQ(round().master_address, "10.0.0.2");
}

// The node with the store reaches it, and is reached, within its host.
TEST_F(NodeCoordinatorTest, TellsAddressesThatReachFromOneHostToAnother) {
  for (const int rank_of_the_store : {0, 1}) {
    start(2, 2);
    MemberRecord with_store = member("1", 1, rank_of_the_store);
    with_store.address = "127.0.0.1";
    with_store.store = "127.0.0.1";
    come(with_store);
    come(member("2"));
    EXPECT_EQ(round().store, "10.0.0.1");
    EXPECT_EQ(round().master_address, rank_of_the_store == 0 ? "10.0.0.1" : "10.0.0.2");
  }
}

TEST_F(NodeCoordinatorTest, AsksForOutcomesIfAnyNodeWantsThem) {
  for (const char* who : {"1", "2", "nobody"}) {
    start(2, 2);
    for (const char* id : {"1", "2"}) {
      MemberRecord record = member(id);
      record.wants_outcomes = record.id == who;
      come(record);
    }
    EXPECT_EQ(round().outcomes, who != std::string("nobody")) << who;
  }
}

TEST_F(NodeCoordinatorTest, NamesTheNodeRanksThatAreMissing) {
  start(4, 4);
  come(member("1", 1, 2));
  come(member("2", 1, 0));
  EXPECT_THAT(text("nodes/waiting"),
              AllOf(HasSubstr("waiting for 2 of 4 nodes"), HasSubstr("missing: node rank 1, 3")));
  pass(61s);
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 123);
  EXPECT_THAT(verdict().reason, AllOf(HasSubstr("only 2 of 4 nodes came within 60 s"),
                                      HasSubstr("missing: node rank 1, 3")));
}

TEST_F(NodeCoordinatorTest, NamesNoMoreThanEightNodeRanksThatAreMissing) {
  start(10, 10);
  come(member("1", 1, 0));
  EXPECT_THAT(text("nodes/waiting"), EndsWith("missing: node rank 1, 2, 3, 4, 5, 6, 7, 8, ..."));
  come(member("2", 1, 9));
  EXPECT_THAT(text("nodes/waiting"), EndsWith("missing: node rank 1, 2, 3, 4, 5, 6, 7, 8"));
}

TEST_F(NodeCoordinatorTest, RefusesTheSecondThatClaimsANodeRankAndNamesBoth) {
  start(2, 2);
  come(member("1", 1, 1));
  come(member("2", 1, 1));
  lives("1");
  EXPECT_EQ(text("nodes/refused/2"),
            "two nodes claim node rank 1: host-1 (pid 7) and host-2 (pid 7)");
  EXPECT_THAT(text("nodes/waiting"), HasSubstr("refused: two nodes claim node rank 1"));
  come(member("3", 1, 0));
  EXPECT_EQ(ranks(), "3 1");
}

TEST_F(NodeCoordinatorTest, RefusesOtherVersionsNumbersOfNodesAndNodesTooMany) {
  start(2, 2);
  MemberRecord other = member("9");
  other.version = "2.0";
  come(other);
  EXPECT_EQ(text("nodes/refused/9"),
            "different versions: host-9 (pid 7) runs dlaunch 2.0, the node with the store 1.0");
  other = member("8");
  other.nodes = "3";
  come(other);
  EXPECT_THAT(text("nodes/refused/8"), HasSubstr("was started with --nnodes 3"));
  come(member("7", 1, 2));
  EXPECT_EQ(text("nodes/refused/7"), "host-7 (pid 7) claims node rank 2 of 2 nodes");
  come(member("1"));
  come(member("2"));
  come(member("3"));
  lives("1");
  lives("2");
  EXPECT_THAT(text("nodes/refused/3"), HasSubstr("host-3 (pid 7) is surplus"));
  EXPECT_EQ(ranks(), "1 2");
}

TEST_F(NodeCoordinatorTest, ANodeMayComeBeforeTheOneWhosePlaceItTakesIsMissed) {
  start(2, 2, 1);
  come(member("1", 1, 0));
  come(member("2", 1, 1));
  EXPECT_EQ(ranks(), "1 2");
  come(member("3", 1, 1));
  lives("1");
  EXPECT_FALSE(wrote("nodes/refused/3"));
  leave("2", "no sign of life for 4.0 s");
  end("1", stopped());
  pass(1s);
  EXPECT_FALSE(wrote("nodes/refused/3"));
  EXPECT_EQ(ranks(), "1 3");
}

TEST_F(NodeCoordinatorTest, WhoeverWaitsForAPlaceMayGo) {
  start(2, 2);
  come(member("1", 1, 1));
  come(member("2", 1, 1));
  come(member("2", 1, 1));  // told twice
  leave("2");
  lives("1");
  EXPECT_FALSE(wrote("nodes/refused/2"));
  leave("1");
  come(member("3", 1, 0));
  EXPECT_FALSE(wrote("nodes/round"));  // nobody else is there
}

TEST_F(NodeCoordinatorTest, TheFirstOfThoseThatWaitForAPlaceGetsIt) {
  start(2, 2);
  come(member("1"));
  come(member("2"));
  come(member("3"));
  come(member("4"));
  lives("1");
  leave("2");
  EXPECT_FALSE(wrote("nodes/refused/3"));
  EXPECT_FALSE(wrote("nodes/refused/4"));  // the third has not lived since it came
  lives("3");
  EXPECT_THAT(text("nodes/refused/4"), HasSubstr("host-4 (pid 7) is surplus"));
}

TEST_F(NodeCoordinatorTest, IsDoneWhenAllRanksHaveFinished) {
  start(2, 2);
  come(member("1"));
  come(member("2"));
  end("2", {.how = How::kFinished});
  EXPECT_FALSE(coordinator_->done());
  end("1", {.how = How::kFinished});
  EXPECT_TRUE(coordinator_->done());
  EXPECT_EQ(verdict().action, Action::kFinished);
  EXPECT_EQ(verdict().exit_code, 0);
}

TEST_F(NodeCoordinatorTest, GivesAllNodesTheLongestGracePeriodOfAny) {
  for (const int patients_rank : {0, 1}) {
    start(2, 2);
    MemberRecord patient = member("2", 1, patients_rank);
    patient.grace_ms = 60'000;
    come(member("1"));
    come(patient);
    EXPECT_EQ(round().verdict_limit_ms, (60 + 255 + 30) * 1000);
    end("1", failed(0, 5));
    pass(314s);
    EXPECT_FALSE(coordinator_->done());
    end("2", stopped());
    EXPECT_EQ(verdict().exit_code, 5);
    EXPECT_TRUE(verdict().lost.empty());
  }
}

TEST_F(NodeCoordinatorTest, TellsOfTheLongestGracePeriodThereIs) {
  start(1, 1);
  MemberRecord patient = member("1");
  patient.grace_ms = std::chrono::milliseconds(24h * 366).count();
  ASSERT_TRUE(parse_record<MemberRecord>(to_text(patient)).ok());
  come(patient);
  EXPECT_GT(round().verdict_limit_ms, patient.grace_ms);
}

TEST_F(NodeCoordinatorTest, TakesANodeForLostThatDoesNotEndItsRanksAfterThat) {
  start(2, 2);
  come(member("1"));
  come(member("2"));
  end("1", failed(0, 5));
  pass(256s);
  EXPECT_EQ(verdict().exit_code, 5);
  EXPECT_EQ(verdict().lost, std::vector<int>{1});
}

TEST_F(NodeCoordinatorTest, NamesTheLossIfNobodyComesInThePlaceOfALostNode) {
  start(2, 2, /*max_restarts=*/1);
  come(member("1"));
  come(member("2"));
  leave("2");
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kAgain);
  EXPECT_EQ(describe_next(verdict()), "dlaunch: the job starts again once 1 more node has come");
  pass(62s);
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, kLauncherNodeLost);
  EXPECT_THAT(verdict().reason, HasSubstr("only 1 of 2 nodes came within 60 s"));
}

TEST_F(NodeCoordinatorTest, SaysHowManyNodesItWaitsForOnlyWhereItDoes) {
  start(3, 3, /*max_restarts=*/2);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  end("1", failed(0, 3));
  end("2", stopped());
  end("3", stopped());
  EXPECT_EQ(describe_next(verdict()), "dlaunch: restart in 1.00 s");
  pass(2s);
  leave("2");
  leave("3");
  end("1", stopped());
  EXPECT_EQ(describe_next(verdict()), "dlaunch: the job starts again once 2 more nodes have come");
}

TEST_F(NodeCoordinatorTest, AdvisesOnTheEndpointOnlyUntilNodesHaveMetThere) {
  advise("try another endpoint");
  start(2, 2, /*max_restarts=*/1);
  come(member("1"));
  pass(61s);
  EXPECT_THAT(verdict().reason, EndsWith("came within 60 s; try another endpoint"));
  start(2, 2);
  come(member("1"));
  MemberRecord other = member("2");
  other.nodes = "3";
  come(other);  // it has found the way
  pass(61s);
  EXPECT_THAT(verdict().reason, HasSubstr("refused: different numbers of nodes"));
  EXPECT_THAT(verdict().reason, Not(HasSubstr("try another endpoint")));
  start(2, 2, /*max_restarts=*/1);
  come(member("1"));
  come(member("2"));
  leave("2");
  end("1", stopped());
  pass(62s);
  EXPECT_THAT(verdict().reason, EndsWith("node 1 (host-2 (pid 7)) is lost: its dlaunch has gone"));
}

TEST_F(NodeCoordinatorTest, EndsBeforeTheFirstRoundWithTheNodeThatHasTheStore) {
  start(3, 3);  // it is node 1
  come(member("1"));
  come(member("2"));
  const EndedRecord timeout{.how = How::kTimeout, .exit_code = 124, .error = "--timeout passed"};
  end_in(-1, "2", timeout);
  EXPECT_FALSE(wrote(node_keys::kVerdict));
  end_in(-1, "1", timeout);
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 124);
  EXPECT_EQ(verdict().reason, "node (host-1 (pid 7)): --timeout passed");
}

// Though it has not left yet.
TEST_F(NodeCoordinatorTest, BeginsWithoutANodeThatWasToldToEndBeforeTheFirstRound) {
  start(2, 2);
  come(member("2"));
  end_in(-1, "2", {.how = How::kSignal, .exit_code = 130, .error = "ended by SIGINT"});
  come(member("1"));
  EXPECT_FALSE(wrote(node_keys::kRound));
  EXPECT_THAT(text("nodes/waiting"), HasSubstr("1 of 2 nodes"));
  leave("2");
  come(member("3"));
  EXPECT_EQ(ranks(), "1 3");
}

TEST_F(NodeCoordinatorTest, EndsWithANodeThatIsToldToAfterItsRanksHaveFinished) {
  start(2, 2);
  come(member("1"));
  come(member("2"));
  end("2", {.how = How::kFinished});
  end("2", {.how = How::kSignal, .exit_code = 130, .error = "ended by SIGINT"});
  EXPECT_EQ(stop().number, 0);
  end("1", stopped());
  EXPECT_EQ(verdict().exit_code, 130);
  EXPECT_EQ(verdict().reason, "node 1 (host-2 (pid 7)): ended by SIGINT");
}

// Its ranks have just finished, or ended well at the signal: that is not true of all.
TEST_F(NodeCoordinatorTest, DoesNotEndWellBecauseTheRanksOfTheNodeThatIsToldToHave) {
  for (const int elsewhere : {0, 143}) {
    start(2, 2);
    come(member("1"));
    come(member("2"));
    end("2", {.how = How::kSignal, .exit_code = 0, .error = "ended by SIGINT"});
    end("1", {.how = How::kStopped, .exit_code = elsewhere});
    EXPECT_EQ(verdict().exit_code, elsewhere);
  }
}

TEST_F(NodeCoordinatorTest, DoesNotEndWellWhereNothingIsKnownOfANodesRanks) {
  start(2, 2);
  come(member("1"));
  come(member("2"));
  end("2", {.how = How::kSignal, .exit_code = 0, .error = "ended by SIGINT"});
  leave("1");
  EXPECT_EQ(verdict().exit_code, kLauncherNodeLost);
}

TEST_F(NodeCoordinatorTest, NamesTheFirstFailureByItsAgeWhateverTheOrderOfReports) {
  start(3, 3);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  end("3", failed(2, 9, 10ms));
  EXPECT_EQ(stop().number, 0);
  EXPECT_FALSE(wrote(node_keys::kVerdict));  // the others have not ended yet
  pass(30ms);
  end("1", failed(0, 5, 100ms));  // was earlier, but it took longer until it was told
  end("2", stopped());
  EXPECT_EQ(verdict().exit_code, 5);
  EXPECT_EQ(verdict().node, 0);
  EXPECT_EQ(parse_failure(verdict().failure)->rank, 0);
}

TEST_F(NodeCoordinatorTest, TakesALostPeerForTheCauseOnlyIfThereIsNothingElse) {
  start(2, 2);
  come(member("1"));
  come(member("2"));
  end("1", failed(0, 4, 1s));
  end("2", failed(1, 139));
  EXPECT_EQ(verdict().exit_code, 139);
}

TEST_F(NodeCoordinatorTest, EndsAllWhenANodeIsLostAndNamesIt) {
  start(3, 3);
  for (const char* id : {"1", "2", "3"}) come(member(id));
  leave("2", "no sign of life for 4 s");
  EXPECT_THAT(stop().why, HasSubstr("node 1 (host-2 (pid 7)) is lost"));
  EXPECT_THAT(text("nodes/refused/2"), HasSubstr("taken for lost"));
  end("1", stopped());
  end("3", failed(2, 4));  // an echo
  EXPECT_EQ(verdict().exit_code, 122);
  EXPECT_EQ(verdict().node, 1);
  EXPECT_EQ(verdict().reason, "node 1 (host-2 (pid 7)) is lost: no sign of life for 4 s");
}

TEST_F(NodeCoordinatorTest, TellsAFailureBeforeTheLossFromOneAfterIt) {
  for (const bool before : {true, false}) {
    start(2, 2);
    come(member("1"));
    come(member("2"));
    now_ += 10s;
    end("1", failed(0, 3));
    now_ += 4s;
    const auto last_seen = before ? now_ - 1s : now_ - 5s;
    coordinator_->member_left("2", "silent", last_seen, now_);
    pass(0s);
    EXPECT_EQ(verdict().exit_code, before ? 3 : 122);
  }
}

TEST_F(NodeCoordinatorTest, TakesANodeThatDoesNotEndItsRanksForLost) {
  start(2, 2);
  come(member("1"));
  come(member("2"));
  end("1", failed(0, 3));
  pass(254s);
  EXPECT_FALSE(coordinator_->done());
  pass(2s);
  EXPECT_TRUE(coordinator_->done());
  EXPECT_EQ(verdict().exit_code, 3);
}

TEST_F(NodeCoordinatorTest, RestartsAllAndCountsOverAllNodes) {
  start(2, 2, /*max_restarts=*/1);
  come(member("1"));
  come(member("2"));
  end("1", failed(0, 3));
  end("2", stopped());
  EXPECT_EQ(verdict().action, Action::kAgain);
  EXPECT_EQ(verdict().delay_ms, 1000);
  pass(900ms);
  EXPECT_EQ(round().number, 0);
  pass(200ms);
  EXPECT_EQ(round().number, 1);
  EXPECT_EQ(round().restarts, 1);
  EXPECT_EQ(ranks(), "1 2");
  end("2", failed(1, 6));
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 6);
}

TEST_F(NodeCoordinatorTest, DoesNotRestartWhatNeverGotReady) {
  start(1, 2, /*max_restarts=*/3);
  come(member("1"));
  pass(3s);
  end("1", failed(0, 3, 0s, /*got_ready=*/false));
  EXPECT_EQ(verdict().action, Action::kFailed);
}

TEST_F(NodeCoordinatorTest, DoesNotRestartBesideProcessesThatCouldNotBeKilled) {
  start(2, 2, /*max_restarts=*/3);
  come(member("1"));
  come(member("2"));
  end("1", failed(0, 3));
  pass(20s);  // for so long it tries to kill its ranks, and then all else
  end("2", {.how = How::kStopped, .leftovers = true});
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 3);
  EXPECT_EQ(describe_next(verdict()), "dlaunch: no restart: some processes could not be killed");
}

TEST_F(NodeCoordinatorTest, ASignalToOneNodeEndsTheJobWithoutARestart) {
  start(2, 2, /*max_restarts=*/3);
  come(member("1"));
  come(member("2"));
  end("2", {.how = How::kSignal, .exit_code = 130, .error = "ended by SIGINT"});
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 130);
  EXPECT_EQ(verdict().reason, "node 1 (host-2 (pid 7)): ended by SIGINT");
}

// As a cluster's manager does that starts a process again whose node has finished.
TEST_F(NodeCoordinatorTest, ANodeThatComesBackAfterItsRanksHaveFinishedDisturbsNobody) {
  start(2, 2);
  come(member("1"));
  come(member("2"));
  end("2", {.how = How::kFinished});
  leave("2");
  come(member("3"));
  EXPECT_FALSE(wrote(node_keys::kStop));
  EXPECT_EQ(text("nodes/waiting"), "the job of 2 nodes is running; waiting for its end");
  end("1", {.how = How::kFinished});
  EXPECT_EQ(verdict().action, Action::kFinished);
  EXPECT_EQ(round().number, 0);
}

TEST_F(NodeCoordinatorTest, ANodeThatComesBackTakesPartInARestart) {
  start(2, 2, /*max_restarts=*/1);
  come(member("1"));
  come(member("2"));
  end("2", {.how = How::kFinished});
  leave("2");
  come(member("3"));
  end("1", failed(0, 3));
  pass(1s);
  EXPECT_EQ(round().number, 1);
  EXPECT_EQ(ranks(), "1 3");
}

TEST_F(NodeCoordinatorTest, ASignalToANodeThatOnlyWaitsEndsNothing) {
  start(2, 2);
  come(member("1"));
  come(member("2"));
  end("2", {.how = How::kFinished});
  leave("2");
  come(member("3"));
  end("3", interrupted());
  leave("3");
  EXPECT_FALSE(wrote(node_keys::kStop));
  end("1", {.how = How::kFinished});
  EXPECT_EQ(verdict().action, Action::kFinished);
}

TEST_F(NodeCoordinatorTest, ANodeThatGoesBeforeTheStartIsSimplyMissing) {
  start(2, 2);
  come(member("1", 1, 0));
  leave("1");
  come(member("2", 1, 0));
  EXPECT_FALSE(wrote("nodes/refused/2"));
  come(member("3", 1, 1));
  EXPECT_EQ(ranks(), "2 3");
}

TEST_F(NodeCoordinatorTest, TellsTheOthersWhenTheNodeWithTheStoreHasToGo) {
  start(2, 2);
  come(member("1"));
  come(member("2"));
  coordinator_->give_up();
  pass(0s);
  EXPECT_TRUE(coordinator_->done());
  EXPECT_EQ(verdict().reason,
            "node 0 (host-1 (pid 7)) is lost: it hosted the store, and has left the job");
  EXPECT_EQ(verdict().exit_code, 122);
  EXPECT_EQ(stop().number, round().number);
}

// The node has not heard of the new round when its user ends it.
TEST_F(NodeCoordinatorTest, ASignalThatSpeaksOfTheRoundBeforeEndsThisOne) {
  start(2, 2, 1);
  come(member("1"));
  come(member("2"));
  const int before = round().number;
  end("1", failed(0, 3));
  end("2", stopped());
  pass(1s);
  ASSERT_GT(round().number, before);
  end_in(before, "2", {.how = How::kSignal, .exit_code = 130, .error = "ended by SIGINT"});
  EXPECT_EQ(stop().number, round().number);
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 130);
}

// Its dlaunch does not wait for the others when it knows no round that runs.
TEST_F(NodeCoordinatorTest, ASignalToANodeThatIsGoneWhenTheOthersEndStillEndsTheJob) {
  start(2, 2, 1);
  come(member("1"));
  come(member("2"));
  end("2", interrupted());
  leave("2");
  end("1", stopped());
  EXPECT_EQ(verdict().action, Action::kFailed);
  EXPECT_EQ(verdict().exit_code, 143);
  EXPECT_THAT(verdict().reason, HasSubstr("node 1 (host-2 (pid 7)): ended by SIGTERM"));
}

TEST_F(NodeCoordinatorTest, ASignalToTheNodeWithTheStoreIsToldByTheLastThatItSays) {
  start(2, 2, 1);
  come(member("1"));
  come(member("2"));
  end("1", interrupted());
  coordinator_->give_up();
  pass(0s);
  EXPECT_EQ(verdict().exit_code, 143);
  EXPECT_THAT(verdict().reason, HasSubstr("ended by SIGTERM"));
}

TEST_F(NodeCoordinatorTest, AFailureOnANodeThatIsGoneWhenTheOthersEndStillCounts) {
  start(2, 2);
  come(member("1"));
  come(member("2"));
  end("2", failed(1, 9));
  leave("2");
  end("1", stopped());
  EXPECT_EQ(verdict().exit_code, 9);
  EXPECT_EQ(verdict().node, 1);
}

}  // namespace
}  // namespace dlaunch::testing
