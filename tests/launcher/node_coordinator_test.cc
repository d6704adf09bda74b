// The decisions over several nodes, without any I/O: what happens goes in, keys come out.
#include "launcher/nodes/node_coordinator.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Action = VerdictRecord::Action;
using How = EndedRecord::How;

class NodeCoordinatorTest : public ::testing::Test {
 protected:
  void start(int least, int most, int max_restarts = 0) {
    nodes_ = std::to_string(least);
    if (most != least) nodes_ += ":" + std::to_string(most);
    coordinator_.emplace(NodeCoordinator::Options{.least = least,
                                                  .most = most,
                                                  .nodes = nodes_,
                                                  .version = "1.0",
                                                  .job_id = "job",
                                                  .host_id = "1",
                                                  .max_restarts = max_restarts,
                                                  .restart_delay = 1s,
                                                  .join_timeout = 60s,
                                                  .settle = 2s,
                                                  .end_limit = 20s},
                         now_);
  }
  MemberRecord member(const std::string& id, int ranks = 1, int node_rank = -1) const {
    return {.id = id,
            .host = "host-" + id,
            .pid = 7,
            .version = "1.0",
            .nodes = nodes_,
            .node_rank = node_rank,
            .ranks = ranks,
            .address = "10.0.0." + id,
            .store = "10.0.0.1",
            .master_port = 4000};
  }
  void come(const MemberRecord& member) {
    coordinator_->member_came(member, now_);
    read();
  }
  void leave(const std::string& id, const std::string& why = "its dlaunch has gone") {
    coordinator_->member_left(id, why, now_, now_);
    read();
  }
  void end(const std::string& id, const EndedRecord& ended) { end_in(round().number, id, ended); }
  void end_in(int round, const std::string& id, const EndedRecord& ended) {
    coordinator_->member_ended(round, id, ended, now_);
    read();
  }
  void pass(std::chrono::nanoseconds time) {
    now_ += std::chrono::duration_cast<NodeCoordinator::Time::duration>(time);
    coordinator_->time_passed(now_);
    read();
  }
  static EndedRecord failed(int rank, int exit_code, std::chrono::nanoseconds age = 0s,
                            bool got_ready = true) {
    return {.how = How::kFailed,
            .failure = serialize({.rank = rank, .host = "host", .exit_code = exit_code}),
            .age_ns = age.count(),
            .got_ready = got_ready,
            .exit_code = exit_code};
  }
  static EndedRecord stopped() { return {.how = How::kStopped, .got_ready = true}; }

  bool wrote(std::string_view key) const { return state_.contains(std::string(key)); }
  std::string text(const std::string& key) const {
    const auto found = state_.find(key);
    return found == state_.end() ? "(nothing)" : found->second;
  }
  RoundRecord round() const {
    return parse_record<RoundRecord>(text(std::string(node_keys::kRound))).value_or_throw();
  }
  StopRecord stop() const {
    return parse_record<StopRecord>(text(std::string(node_keys::kStop))).value_or_throw();
  }
  VerdictRecord verdict() const {
    return parse_record<VerdictRecord>(text(std::string(node_keys::kVerdict))).value_or_throw();
  }
  std::string ranks() const {  // "b a c": the nodes of the round in their order
    std::string ids;
    for (const auto& node : round().nodes) ids += (ids.empty() ? "" : " ") + node.id;
    return ids;
  }

  NodeCoordinator::Time now_;
  std::optional<NodeCoordinator> coordinator_;

 private:
  void read() {
    for (auto& write : coordinator_->take_writes()) {
      if (write.value) {
        state_[write.key] = *write.value;
      } else {
        state_.erase(write.key);
      }
    }
  }
  std::string nodes_;
  std::map<std::string, std::string> state_;
};

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

TEST_F(NodeCoordinatorTest, RefusesTheSecondThatClaimsANodeRankAndNamesBoth) {
  start(2, 2);
  come(member("1", 1, 1));
  come(member("2", 1, 1));
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
  come(member("1"));
  come(member("2"));
  come(member("3"));
  EXPECT_THAT(text("nodes/refused/3"), HasSubstr("host-3 (pid 7) is one too many"));
  EXPECT_EQ(ranks(), "1 2");
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
  pass(19s);
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

TEST_F(NodeCoordinatorTest, AnElasticJobWaitsAMomentForMoreNodes) {
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

TEST_F(NodeCoordinatorTest, AnElasticJobGoesOnWithTheSurvivorsWhoKeepTheirNumbers) {
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

TEST_F(NodeCoordinatorTest, ANodeJoinsAnElasticJobThatRuns) {
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

TEST_F(NodeCoordinatorTest, AnElasticJobWithTooFewNodesWaitsForMoreAndThenFails) {
  start(2, 3);
  for (const char* id : {"1", "2"}) come(member(id));
  pass(3s);
  leave("1");
  end("2", stopped());
  EXPECT_EQ(text("nodes/waiting"), "waiting for 1 of 2:3 nodes; here: host-2");
  pass(61s);
  EXPECT_EQ(verdict().exit_code, 123);
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
}

TEST_F(NodeCoordinatorTest, ASignalBetweenTwoRoundsEndsTheJob) {
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
  end("2", {.how = How::kSignal, .exit_code = 143, .error = "ended by SIGTERM"});
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
  end("1", {.how = How::kSignal, .exit_code = 143, .error = "ended by SIGTERM"});
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
}  // namespace dlaunch
