// Elastic jobs: several dlaunch processes on this machine that come and go.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/node_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Strings kTellsTheWorld{"sh", "-c", "echo world $WORLD_SIZE; exec sleep 300"};

// Makes a program of that text; returns its path.
std::string make_script(const std::string& text) {
  static int number = 0;
  std::string path =
      ::testing::TempDir() + "/script." + std::to_string(getpid()) + "." + std::to_string(++number);
  std::ofstream(path) << text;
  chmod(path.c_str(), 0755);
  return path;
}

// A job of one to three nodes, of which two run. The first hosts the store.
class ElasticNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    nodes_.start(kOneRank, kTellsTheWorld);
    ASSERT_TRUE(nodes_[0].wait_for_output("world 1\n", soon()));
    nodes_.start(kOneRank, kTellsTheWorld);
    ASSERT_TRUE(nodes_[0].wait_for_output("world 2\n", soon()));
    ASSERT_TRUE(nodes_[1].wait_for_output("world 2\n", soon()));
  }

  // A signal to the node with the store ends the job on all nodes.
  void end_all(const std::vector<std::size_t>& on) {
    nodes_[0].send_signal(SIGTERM);
    for (const std::size_t node : on) {
      const auto result = nodes_.finish(node);
      EXPECT_EQ(result.exit_code, 143) << result.error;
    }
  }

  Nodes nodes_{"1:3"};
};

TEST_F(ElasticNodes, GoOnWithTheSurvivorsAndTakeInANewcomer) {
  nodes_.start(kOneRank, kTellsTheWorld);
  for (std::size_t node = 0; node < nodes_.size(); ++node)
    ASSERT_TRUE(nodes_[node].wait_for_output("world 3\n", soon())) << node;
  nodes_[2].send_signal(SIGKILL);
  ASSERT_TRUE(nodes_[0].wait_for_error("is lost", soon()));
  ASSERT_TRUE(nodes_[0].wait_for_error("starts again with the nodes that are there", soon()));
  ASSERT_TRUE(nodes_[1].wait_for_output("world 2\nworld 3\nworld 2\n", soon()));
  end_all({0, 1});
}

TEST_F(ElasticNodes, GoOnWhenOneIsToldToGo) {
  nodes_[1].send_signal(SIGTERM);
  const auto gone = nodes_.finish(1);
  EXPECT_EQ(gone.exit_code, 143) << gone.error;
  EXPECT_THAT(gone.error, HasSubstr("dlaunch: ended by SIGTERM; ranks: 1 ended by SIGTERM"));
  ASSERT_TRUE(nodes_[0].wait_for_error("has left the job: ended by SIGTERM", soon()));
  ASSERT_TRUE(nodes_[0].wait_for_output("world 2\nworld 1\n", soon()));
  end_all({0});
}

TEST_F(ElasticNodes, AreNotDisturbedByOneThatCannotStart) {
  const std::string broken = make_script("#!/nowhere/sh\n");
  nodes_.start(kOneRank, {broken});
  const auto refused = nodes_.finish(2);
  unlink(broken.c_str());
  EXPECT_EQ(refused.exit_code, 127) << refused.error;
  EXPECT_THAT(refused.error, HasSubstr(broken + ": cannot be run: the interpreter"));
  nodes_.start({"--nproc", "1", "--log-dir", "/dev/null/logs"}, kTellsTheWorld);
  const auto without_logs = nodes_.finish(3);
  EXPECT_EQ(without_logs.exit_code, 125);
  EXPECT_THAT(without_logs.error, HasSubstr("--log-dir: /dev/null/logs: Not a directory"));
  nodes_.start(kOneRank, kTellsTheWorld);
  ASSERT_TRUE(nodes_[0].wait_for_output("world 1\nworld 2\nworld 3\n", soon()));
  end_all({0, 1, 4});
  EXPECT_EQ(nodes_[0].output(), "world 1\nworld 2\nworld 3\n");
}

// SIGTERM to its dlaunch, or SIGKILL, which the guard alone gets.
TEST(ElasticNodesOf, GoOnWithoutANewStartWhenOneGoesWhoseRanksHaveFinished) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    Nodes nodes("1:2");
    nodes.start_ranks(kOneRank, kRankZeroHasWork);
    ASSERT_TRUE(nodes[0].wait_for_output("0 waits\n", soon()));
    nodes.start_ranks(kOneRank, kRankZeroHasWork);
    ASSERT_TRUE(nodes[0].wait_for_output("0 waits\n0 waits\n", soon()));
    ASSERT_TRUE(nodes.knows_of_end(0, 1));
    nodes[1].send_signal(signal);
    const auto gone = nodes.finish(1);
    EXPECT_EQ(gone.exit_code, 128 + signal) << gone.error;
    if (signal == SIGTERM) {
      EXPECT_EQ(without_waiting(gone.error),
                "dlaunch: ended by SIGTERM after the ranks of this node had finished; the job goes "
                "on\n");
    }
    nodes[0].send_signal(SIGUSR1);
    const auto other = nodes.finish(0);
    EXPECT_EQ(other.exit_code, 0) << other.error;
    EXPECT_EQ(other.out, "0 waits\n0 waits\n0 got " + std::to_string(SIGUSR1) + "\n");
  }
}

// A dlaunch that is held up hears of the newcomer after its rank has ended for what that brings.
TEST(ElasticNodesOf, TakeInANewcomerThoughARankEndsBeforeItsDlaunchKnowsWhy) {
  const Strings program{built_program("comm_rank"), "failure=1", "connect", "out=up", "repeat=60"};
  Nodes nodes("2:3");
  nodes.start(kOneRank, program);
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2:3", soon()));  // so it hosts the store
  nodes.start(kOneRank, program);
  for (std::size_t node = 0; node < 2; ++node)
    ASSERT_TRUE(nodes[node].wait_for_output(std::to_string(node) + " up\n", soon())) << node;
  const pid_t launcher = children_of(nodes[1].pid()).at(0);
  const pid_t rank = children_of(launcher).at(0);
  kill(launcher, SIGSTOP);
  nodes.start(kOneRank, program);
  const bool has_ended = becomes_zombie(rank, soon());
  kill(launcher, SIGCONT);
  EXPECT_TRUE(has_ended);
  for (std::size_t node = 0; node < 2; ++node) {
    const std::string up = std::to_string(node) + " up\n";
    EXPECT_TRUE(nodes[node].wait_for_output(up + up, soon())) << nodes[node].error();
  }
  EXPECT_TRUE(nodes[2].wait_for_output("2 up\n", soon())) << nodes[2].error();
  EXPECT_THAT(nodes[0].error(), HasSubstr("a node joins the job"));
  EXPECT_THAT(nodes[0].error(), Not(HasSubstr("restart in")));
  nodes[0].send_signal(SIGTERM);
  for (std::size_t node = 0; node < 3; ++node) EXPECT_EQ(nodes.finish(node).exit_code, 143) << node;
}

// Of the node that leaves one rank goes at once, which a rank elsewhere does not survive, and one
// takes its time.
TEST(ElasticNodesOf, GoOnWithoutOneWhoseRanksTakeTheirTimeToEnd) {
  const std::string leaver = make_script("");
  const std::string survivor =
      "test $WORLD_SIZE = 1 && echo alone && exec sleep 300; "
      "while ! test -s '" +
      leaver +
      "'; do sleep 0.05; done; "
      "echo together; "
      "while kill -0 $(cat '" +
      leaver + "'); do sleep 0.05; done; exit 1";
  const std::string goes =
      "test $LOCAL_RANK = 1 && trap 'sleep 1; exit' TERM; "
      "test $LOCAL_RANK = 0 && echo $$ > '" +
      leaver +
      "'; "
      "while :; do sleep 0.05; done";
  Nodes nodes("1:2");
  nodes.start(kOneRank, {"sh", "-c", survivor});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for further", soon()));  // so it hosts the store
  nodes.start({"--nproc", "2"}, {"sh", "-c", goes});
  ASSERT_TRUE(nodes[0].wait_for_output("together\n", soon())) << nodes[0].error();
  nodes[1].send_signal(SIGTERM);
  EXPECT_EQ(nodes.finish(1).exit_code, 143);
  EXPECT_TRUE(nodes[0].wait_for_output("together\nalone\n", soon())) << nodes[0].error();
  nodes[0].send_signal(SIGTERM);
  EXPECT_EQ(nodes.finish(0).exit_code, 143);
  unlink(leaver.c_str());
}

// It could when it came.
TEST(ElasticNodesOf, GoOnWhenANewcomerCannotStart) {
  if (kVforkIsFork) GTEST_SKIP() << kVforkIsForkText;
  const std::string gone = make_script("#!/bin/sh\n");
  Nodes nodes("1:2");
  nodes.start(kOneRank, {"sh", "-c",
                         "trap 'echo stops; while test -e \"" + gone +
                             "\"; do sleep 0.05; done; exit' TERM; echo world $WORLD_SIZE; "
                             "while :; do sleep 0.05; done"});
  ASSERT_TRUE(nodes[0].wait_for_output("world 1\n", soon()));
  nodes.start(kOneRank, {gone});
  ASSERT_TRUE(nodes[0].wait_for_output("stops\n", soon()));
  unlink(gone.c_str());
  const auto newcomer = nodes.finish(1);
  EXPECT_EQ(newcomer.exit_code, 127) << newcomer.error;
  ASSERT_TRUE(nodes[0].wait_for_error("has left the job: ", soon()));
  ASSERT_TRUE(nodes[0].wait_for_error("starts again with the nodes that are there", soon()));
  nodes[0].send_signal(SIGTERM);
  EXPECT_EQ(nodes.finish(0).exit_code, 143);
}

}  // namespace
}  // namespace dlaunch::testing
