// Jobs of several nodes: several dlaunch processes on this machine.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "launcher/nodes/beat_clock.h"
#include "launcher/ranks/free_port.h"
#include "runtime/base/descriptor.h"
#include "tests/launcher/node_runs.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Nodes, FormOneJobWithRanksInTheOrderOfTheNodes) {
  Nodes nodes("2");
  const Strings actions{"env=RANK",        "env=WORLD_SIZE",       "env=LOCAL_RANK",
                        "env=GROUP_RANK",  "env=GROUP_WORLD_SIZE", "env=LOCAL_WORLD_SIZE",
                        "env=MASTER_ADDR", "env=DLAUNCH_NODES",    "env=ROLE_WORLD_SIZE"};
  nodes.start_ranks({"--nproc", "2", "--node-rank", "1"}, actions);
  nodes.start_ranks({"--nproc", "1", "--node-rank", "0"}, actions);
  const auto second = nodes.finish(0);
  const auto first = nodes.finish(1);
  EXPECT_EQ(first.exit_code, 0) << first.error;
  EXPECT_EQ(second.exit_code, 0) << second.error;
  EXPECT_EQ(first.out,
            "0 RANK=0\n0 WORLD_SIZE=3\n0 LOCAL_RANK=0\n0 GROUP_RANK=0\n0 GROUP_WORLD_SIZE=2\n"
            "0 LOCAL_WORLD_SIZE=1\n0 MASTER_ADDR=127.0.0.1\n0 DLAUNCH_NODES=2\n"
            "0 ROLE_WORLD_SIZE=3\n");
  for (const char* line :
       {"1 RANK=1", "2 RANK=2", "1 LOCAL_RANK=0", "2 LOCAL_RANK=1", "1 GROUP_RANK=1",
        "2 LOCAL_WORLD_SIZE=2", "2 WORLD_SIZE=3", "2 ROLE_WORLD_SIZE=3"}) {
    EXPECT_THAT(second.out, HasSubstr(line));
  }
}

bool has_ipv6_loopback() {
  const Descriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 loopback{.sin6_family = AF_INET6};
  loopback.sin6_addr = in6addr_loopback;
  return socket.is_open() &&
         bind(socket.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)) == 0;
}

// Programs put the address into a resolver, which knows no brackets.
TEST(Nodes, GiveRanksAnIPv6AddressWithoutBrackets) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no ::1";
  Nodes nodes("2", "[::1]:" + std::to_string(*find_free_port()));
  for (const char* rank : {"0", "1"}) {
    nodes.start_ranks({"--nproc", "1", "--node-rank", rank},
                      {"env=MASTER_ADDR", "env=DLAUNCH_STORE"});
  }
  for (const std::size_t node : {0, 1}) {
    const auto result = nodes.finish(node);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_THAT(result.out, HasSubstr(" MASTER_ADDR=::1\n"));
    EXPECT_THAT(result.out, HasSubstr(" DLAUNCH_STORE=" + nodes.endpoint() + "\n"));
  }
}

TEST(Nodes, CommunicateAtTheAddressThatTheUserHasChosen) {
  Nodes nodes("2");
  for (const char* choice : {"lo", "127.0.0.0/8"}) {
    nodes.start(
        {"--nproc", "1", "--local-addr", choice, "--explain"},
        {"/usr/bin/env", "DLAUNCH_LOG=info", built_program("comm_rank"), "connect", "barrier"});
  }
  for (const std::size_t node : {0, 1}) {
    const auto result = nodes.finish(node);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_THAT(result.error, HasSubstr("address of this node: 127.0.0.1, from --local-addr "));
    EXPECT_THAT(result.error, HasSubstr("; its address is 127.0.0.1:"));
  }
}

TEST(Nodes, AreNotStartedWithAnAddressThatThereIsNot) {
  const Nodes nodes("2");
  Command command = nodes.command({"--nproc", "1"}, {"/bin/true"});
  command.environment = {{"DLAUNCH_INTERFACE", "nowhere0"}};
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: DLAUNCH_INTERFACE: 'nowhere0' is no interface"));
}

// As it is usual with torchrun: the node that hosts the store is given all of its addresses.
class NodesThatMeetAt : public ::testing::TestWithParam<const char*> {};

TEST_P(NodesThatMeetAt, AllAddressesAreOneJob) {
  const std::string port = ":" + std::to_string(*find_free_port());
  const bool ipv6 = std::string(GetParam()) == "[::]";
  if (ipv6 && !has_ipv6_loopback()) GTEST_SKIP() << "this machine has no ::1";
  Nodes nodes("3", GetParam() + port);
  nodes.start_ranks(kOneRank, {});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 2 of 3 nodes", soon()));
  nodes.start_ranks(kOneRank, {});  // on the same host the same leads there
  nodes.meet_at((ipv6 ? "[::1]" : "127.0.0.1") + port);
  nodes.start_ranks(kOneRank, {"env=MASTER_ADDR", "env=DLAUNCH_STORE"});
  for (const std::size_t node : {0, 1}) {
    const auto result = nodes.finish(node);
    EXPECT_EQ(result.exit_code, 0) << result.error;
  }
  const auto result = nodes.finish(2);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out,
              HasSubstr(std::string(" MASTER_ADDR=") + (ipv6 ? "::1\n" : "127.0.0.1\n")));
  EXPECT_THAT(result.out, HasSubstr(" DLAUNCH_STORE=" + nodes.endpoint() + "\n"));
}

INSTANTIATE_TEST_SUITE_P(Endpoints, NodesThatMeetAt, ::testing::Values("0.0.0.0", "[::]"),
                         [](const auto& test) {
                           return std::string(test.param) == "[::]" ? "IPv6" : "IPv4";
                         });

TEST(Nodes, SayWhatCountsWhereTheyWereToldDifferently) {
  Nodes nodes("2");
  nodes.start_ranks({"--nproc", "1", "--node-rank", "0", "--max-restarts", "2"},
                    {"env=TORCHELASTIC_MAX_RESTARTS"});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2", soon()));  // so it hosts the store
  nodes.start_ranks({"--nproc", "1", "--node-rank", "1", "--restart-delay", "3"},
                    {"env=TORCHELASTIC_MAX_RESTARTS"});
  const auto here = nodes.finish(0);
  const auto there = nodes.finish(1);
  EXPECT_EQ(there.exit_code, 0);
  EXPECT_EQ(here.out, "0 TORCHELASTIC_MAX_RESTARTS=2\n");
  EXPECT_EQ(there.out, "1 TORCHELASTIC_MAX_RESTARTS=2\n");
  EXPECT_THAT(here.error, Not(HasSubstr("counts")));
  EXPECT_EQ(without_waiting(there.error),
            "dlaunch: --max-restarts 2 of the node with the store counts, not 0 here\n"
            "dlaunch: --restart-delay 1.00 s of the node with the store counts, not 3.00 s here\n");
}

TEST(Nodes, SayForWhomTheyWait) {
  Nodes nodes("3");
  nodes.start_ranks({"--nproc", "1", "--node-rank", "2"}, {});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 2 of 3 nodes", soon()));
  nodes.start_ranks({"--nproc", "1", "--node-rank", "0"}, {});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 3 nodes", soon()));
  ASSERT_TRUE(nodes[0].wait_for_error("missing: node rank 1\n", soon()));
  nodes.start_ranks({"--nproc", "1", "--node-rank", "1"}, {});
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    EXPECT_EQ(nodes.finish(node).exit_code, 0);
  }
}

TEST(Nodes, AllReportTheFailureThatWasFirstAndExitWithItsCode) {
  Nodes nodes("2");
  nodes.start_ranks({"--nproc", "2", "--node-rank", "0"}, {"pause"});
  nodes.start_ranks({"--nproc", "2", "--node-rank", "1"},
                    {"only=3", "err=out of luck", "exit=7", "only=2", "pause"});
  const auto here = nodes.finish(0);
  const auto there = nodes.finish(1);
  EXPECT_EQ(here.exit_code, 7);
  EXPECT_EQ(there.exit_code, 7);
  EXPECT_THAT(here.error, AllOf(HasSubstr("dlaunch: rank 3 (pid "),
                                HasSubstr("failed with exit code 7"), HasSubstr("| out of luck"),
                                HasSubstr("the ranks of this node: 0, 1 ended by SIGTERM")));
  EXPECT_THAT(there.error,
              AllOf(HasSubstr("[rank 3] out of luck\n"), HasSubstr("failed with exit code 7"),
                    HasSubstr("the other ranks: 2 ended by SIGTERM (collateral)")));
}

// The report of either node, whichever asks for it, is about all ranks.
TEST(Nodes, WriteReportsThatHaveAllRanksOfAllNodes) {
  const std::string path = ::testing::TempDir() + "/" + fresh_mark() + ".json";
  Nodes nodes("2");
  nodes.start_ranks({"--nproc", "2", "--node-rank", "0", "--report", path}, {"pause"});
  nodes.start_ranks({"--nproc", "2", "--node-rank", "1"},
                    {"only=3", "err=out of luck", "exit=7", "only=2", "pause"});
  EXPECT_EQ(nodes.finish(0).exit_code, 7);
  EXPECT_EQ(nodes.finish(1).exit_code, 7);
  const auto report = nlohmann::json::parse(std::ifstream(path));
  std::filesystem::remove(path);
  EXPECT_EQ(report["first_failure"]["rank"], 3);
  ASSERT_EQ(report["attempts"].size(), 1U);
  const auto& attempt = report["attempts"][0];
  ASSERT_EQ(attempt["nodes"].size(), 2U);
  EXPECT_EQ(attempt["nodes"][1]["first_rank"], 2);
  EXPECT_EQ(attempt["nodes"][1]["lost"], false);
  ASSERT_EQ(attempt["ranks"].size(), 4U);
  for (std::size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(attempt["ranks"][rank]["rank"], rank);
  EXPECT_EQ(attempt["ranks"][0]["role"], "collateral");
  EXPECT_EQ(attempt["ranks"][2]["role"], "collateral");
  EXPECT_EQ(attempt["ranks"][3]["role"], "first failure");
  EXPECT_EQ(attempt["ranks"][3]["exit_code"], 7);
  EXPECT_EQ(attempt["ranks"][3]["last_lines"].back(), "out of luck");
}

TEST(Nodes, ReportALostOneAsSuch) {
  const std::string path = ::testing::TempDir() + "/" + fresh_mark() + ".json";
  Nodes nodes("2");
  nodes.start_ranks({"--nproc", "1", "--node-rank", "0", "--report", path}, {"out=up", "pause"});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2", soon()));  // so it hosts the store
  nodes.start_ranks({"--nproc", "1", "--node-rank", "1"}, {"out=up", "pause"});
  ASSERT_TRUE(nodes[0].wait_for_output("up\n", soon()));
  ASSERT_TRUE(nodes[1].wait_for_output("up\n", soon()));
  nodes[1].send_signal(SIGKILL);
  EXPECT_EQ(nodes.finish(0).exit_code, 122);
  (void)nodes.finish(1);
  const auto report = nlohmann::json::parse(std::ifstream(path));
  std::filesystem::remove(path);
  const auto& attempt = report["attempts"][0];
  EXPECT_EQ(attempt["nodes"][1]["lost"], true);
  EXPECT_THAT(attempt["verdict"], HasSubstr("is lost"));
  EXPECT_EQ(attempt["ranks"].size(), 1U);
}

TEST(Nodes, HaveAMasterPortOfItsOwnForEveryRound) {
  Nodes nodes("2");
  for (const char* rank : {"0", "1"}) {
    nodes.start_ranks({"--nproc", "1", "--node-rank", rank, "--max-restarts", "1",
                       "--restart-delay", "0", "--ready-after", "0"},
                      {"env=MASTER_PORT", "only=1", "fail-before=1"});
  }
  const auto here = nodes.finish(0);
  const auto there = nodes.finish(1);
  EXPECT_EQ(here.exit_code, 0) << here.error;
  // Rank 1 tells it in both rounds, rank 0 for certain in the second.
  const auto ports = [](const std::string& text) {
    std::istringstream lines(text);
    Strings found;
    for (std::string line; std::getline(lines, line);) found.push_back(line.substr(2));
    return found;
  };
  const Strings twice = ports(there.out);
  ASSERT_EQ(twice.size(), 2U) << there.out;
  EXPECT_NE(twice[0], twice[1]);
  ASSERT_FALSE(ports(here.out).empty());
  EXPECT_EQ(ports(here.out).back(), twice[1]);
}

TEST(Nodes, OfDifferentRunIdsAreNotOneJob) {
  Nodes nodes("2");
  nodes.start_ranks({"--nproc", "1", "--rdzv-id", "one"}, {});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2", soon()));
  nodes.start_ranks({"--nproc", "1", "--rdzv-id", "two"}, {});
  const auto refused = nodes.finish(1);
  EXPECT_EQ(refused.exit_code, 123) << refused.error;
  EXPECT_THAT(refused.error, HasSubstr("belongs to 'two'"));
  nodes[0].send_signal(SIGINT);
  (void)nodes.finish(0);
}

TEST(Nodes, RefuseToShowARankThatThereIsNot) {
  Nodes nodes("2");
  nodes.start_ranks({"--nproc", "1", "--only", "2"}, {"pause"});
  nodes.start_ranks(kOneRank, {"pause"});
  const auto wrong = nodes.finish(0);
  EXPECT_EQ(wrong.exit_code, 125) << wrong.error;
  EXPECT_THAT(wrong.error, HasSubstr("--only: there is no rank 2 in a job of 2"));
  EXPECT_EQ(nodes.finish(1).exit_code, 125);
}

TEST(Nodes, EndEverywhereWhenOneIsKilledAndNameIt) {
  for (const std::size_t victim : {std::size_t{1}, std::size_t{2}}) {
    const std::string mark = fresh_mark();
    Nodes nodes("3");
    for (const char* rank : {"0", "1", "2"}) {
      nodes.start_ranks({"--nproc", "2", "--node-rank", rank}, {mark, "out=up", "pause"});
    }
    for (std::size_t node = 0; node < 3; ++node) {
      ASSERT_TRUE(nodes[node].wait_for_output("up\nup\n", soon()));
    }
    // It may host the store, and the others then hear of its end from itself or from the socket.
    nodes[victim].send_signal(SIGKILL);
    const std::string named = "node " + std::to_string(victim) + " (";
    for (std::size_t node = 0; node < 3; ++node) {
      if (node == victim) continue;
      const auto result = nodes.finish(node);
      EXPECT_EQ(result.exit_code, 122) << result.error;
      EXPECT_THAT(result.error,
                  AllOf(HasSubstr("is lost"),
                        AnyOf(HasSubstr(named), HasSubstr("the node with the store, "))));
    }
    (void)nodes.finish(victim);
    EXPECT_TRUE(all_gone(mark, soon()));
  }
}

TEST(Nodes, NoticeOneThatHasFallenSilentWithinFiveSeconds) {
  const std::string mark = fresh_mark();
  Nodes nodes("2");
  nodes.start_ranks({"--nproc", "1", "--node-rank", "0"}, {mark, "out=up", "pause"});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2", soon()));  // so it hosts the store
  nodes.start_ranks({"--nproc", "1", "--node-rank", "1"}, {mark, "out=up", "pause"});
  ASSERT_TRUE(nodes[1].wait_for_output("up\n", soon()));
  ASSERT_TRUE(nodes[0].wait_for_output("up\n", soon()));
  const auto launcher = children_of(nodes[1].pid());
  ASSERT_EQ(launcher.size(), 1U);
  kill(launcher[0], SIGSTOP);
  const auto result = nodes.finish(0);
  EXPECT_EQ(result.exit_code, 122) << result.error;
  // By its own clock, however late this test looks.
  const std::string silence = "is lost: no sign of life for ";
  const auto at = result.error.find(silence);
  ASSERT_NE(at, std::string::npos) << result.error;
  const double limit = kSanitized ? 15 : 5;  // the node that notices it may be held up, too
  EXPECT_LT(std::stod(result.error.substr(at + silence.size())), limit) << result.error;
  // Once it goes on it learns that, and ends its ranks.
  kill(launcher[0], SIGCONT);
  const auto silent = nodes.finish(1);
  EXPECT_EQ(silent.exit_code, 122) << silent.error;
  // As the store has told it, or by its own clock.
  EXPECT_THAT(silent.error, AnyOf(HasSubstr("this node was taken for lost: no sign of life"),
                                  HasSubstr("this node was silent for")));
  EXPECT_TRUE(all_gone(mark, soon()));
}

TEST(Nodes, MayBeSilentForAsLongAsTheJobAllows) {
  const Strings actions{"out=up", "await=" + std::to_string(SIGUSR1)};
  Nodes nodes("2");
  for (const int node : {0, 1}) {
    nodes.start_ranks({"--nproc", "1", "--node-silence", "60"}, actions);
    ASSERT_TRUE(node > 0 || nodes[0].wait_for_error("waiting for 1 of 2", soon()));
  }
  for (const int node : {0, 1}) ASSERT_TRUE(nodes[node].wait_for_output("up\n", soon()));
  for (const int node : {0, 1}) {  // the one with the store, and the other one
    const auto launcher = children_of(nodes[node].pid());
    ASSERT_EQ(launcher.size(), 1U);
    kill(launcher[0], SIGSTOP);
    std::this_thread::sleep_for(kLongestSilence + std::chrono::seconds(1));
    kill(launcher[0], SIGCONT);
  }
  for (const int node : {0, 1}) kill(nodes[node].pid(), SIGUSR1);
  for (const int node : {0, 1}) {
    const auto result = nodes.finish(node);
    EXPECT_EQ(result.exit_code, 0) << result.error;
  }
}

// As machines that are suspended together: the one with the store does not take its own sleep for
// the silence of the others.
TEST(Nodes, StandStillAllTogetherAndGoOn) {
  Nodes nodes("2");
  const Strings actions{"out=up", "await=" + std::to_string(SIGUSR1)};
  nodes.start_ranks(kOneRank, actions);
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2", soon()));  // so it hosts the store
  nodes.start_ranks(kOneRank, actions);
  std::vector<pid_t> launchers;
  for (const int node : {0, 1}) {
    ASSERT_TRUE(nodes[node].wait_for_output("up\n", soon()));
    launchers.push_back(children_of(nodes[node].pid()).at(0));
  }
  for (const pid_t launcher : launchers) kill(launcher, SIGSTOP);
  std::this_thread::sleep_for(kLongestSilence + std::chrono::seconds(1));
  kill(launchers[0], SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(launchers[1], SIGCONT);
  for (const int node : {0, 1}) kill(nodes[node].pid(), SIGUSR1);
  for (const int node : {0, 1}) {
    const auto result = nodes.finish(node);
    EXPECT_EQ(result.exit_code, 0) << result.error;
  }
}

TEST(Nodes, AreReplacedAlsoBeforeTheirLossIsNoticed) {
  const std::string mark = fresh_mark();
  const Strings actions{mark, "out=up", "pause"};
  const auto options = [](const char* node_rank) {
    return Strings{"--nproc",       "1", "--node-rank",     node_rank, "--max-restarts", "1",
                   "--ready-after", "0", "--restart-delay", "0"};
  };
  Nodes nodes("2");
  nodes.start_ranks(options("0"), actions);
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2", soon()));  // so it hosts the store
  nodes.start_ranks(options("1"), actions);
  ASSERT_TRUE(nodes[1].wait_for_output("up\n", soon()));
  const auto launcher = children_of(nodes[1].pid());
  ASSERT_EQ(launcher.size(), 1U);
  kill(launcher[0], SIGSTOP);
  nodes.start_ranks(options("1"), actions);
  EXPECT_TRUE(nodes[2].wait_for_output("up\n", soon()));
  EXPECT_TRUE(nodes[0].wait_for_output("up\nup\n", soon()));
  kill(launcher[0], SIGCONT);
  EXPECT_EQ(nodes.finish(1).exit_code, 122);
  nodes[0].send_signal(SIGTERM);
  EXPECT_EQ(nodes.finish(0).exit_code, 128 + SIGTERM);
  EXPECT_EQ(nodes.finish(2).exit_code, 128 + SIGTERM);
  EXPECT_TRUE(all_gone(mark, soon()));
}

TEST(Nodes, EndWithTheSignalThatOneOfThemGets) {
  Nodes nodes("2");
  nodes.start_ranks(kOneRank, {"out=up", "pause"});
  nodes.start_ranks(kOneRank, {"out=up", "pause"});
  ASSERT_TRUE(nodes[0].wait_for_output("up\n", soon()));
  ASSERT_TRUE(nodes[1].wait_for_output("up\n", soon()));
  nodes[1].send_signal(SIGINT);
  const auto other = nodes.finish(0);
  EXPECT_EQ(other.exit_code, 130) << other.error;
  EXPECT_THAT(other.error, HasSubstr("ended by SIGINT"));
  EXPECT_EQ(nodes.finish(1).exit_code, 130);
}

TEST(Nodes, DoNotWaitForRanksElsewhereToEndAfterAnotherSignal) {
  Nodes nodes("2");
  const Strings patient{"--nproc", "1", "--grace", "60"};
  nodes.start_ranks(patient, {"out=up", "pause"});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2", soon()));  // so it hosts the store
  nodes.start_ranks(patient, {"ignore=" + std::to_string(SIGTERM), "out=up", "pause"});
  ASSERT_TRUE(nodes[0].wait_for_output("up\n", soon()));
  ASSERT_TRUE(nodes[1].wait_for_output("up\n", soon()));
  nodes[0].send_signal(SIGINT);
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for the other nodes to end their ranks", soon()));
  nodes[0].send_signal(SIGINT);
  const auto result = nodes.finish(0);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: ended by SIGINT; ranks: "));
  EXPECT_THAT(result.error, HasSubstr("before the ranks of the other nodes had ended"));
  nodes[1].send_signal(SIGINT);
  EXPECT_EQ(nodes.finish(1).exit_code, 130);
}

TEST(Nodes, EndWithTheSignalThatOneGetsWhoseRanksHaveFinished) {
  Nodes nodes("2");
  nodes.start_ranks({"--nproc", "1", "--node-rank", "0"}, {"out=up", "pause"});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2", soon()));  // so it hosts the store
  nodes.start_ranks({"--nproc", "1", "--node-rank", "1"}, {"out=done"});
  ASSERT_TRUE(nodes[1].wait_for_output("done\n", soon()));
  ASSERT_TRUE(nodes.knows_of_end(0, 1));
  ASSERT_TRUE(nodes[0].wait_for_output("up\n", soon()));
  nodes[1].send_signal(SIGINT);
  EXPECT_EQ(nodes.finish(1).exit_code, 130);
  EXPECT_EQ(nodes.finish(0).exit_code, 130);
}

TEST(Nodes, GoOnWhenTheGuardOfOneIsKilledWhoseRanksHaveFinished) {
  Nodes nodes("2");
  nodes.start_ranks({"--nproc", "1", "--node-rank", "0"}, kRankZeroHasWork);
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2", soon()));  // so it hosts the store
  nodes.start_ranks({"--nproc", "1", "--node-rank", "1"}, kRankZeroHasWork);
  ASSERT_TRUE(nodes[0].wait_for_output("0 waits\n", soon()));
  ASSERT_TRUE(nodes.knows_of_end(0, 1));
  nodes[1].send_signal(SIGKILL);
  EXPECT_THAT(nodes.finish(1).error, HasSubstr("its guarding process was killed"));
  nodes[0].send_signal(SIGUSR1);
  const auto other = nodes.finish(0);
  EXPECT_EQ(other.exit_code, 0) << other.error;
}

TEST(Nodes, CanBeInterruptedWhileTheyWait) {
  Nodes nodes("2");
  nodes.start_ranks(kOneRank, {});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2 nodes", soon()));
  nodes[0].send_signal(SIGINT);
  const auto result = nodes.finish(0);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.error, HasSubstr("while waiting for other nodes"));
}

TEST(Nodes, EndTogetherWithTheOneThatHasTheStoreWhileTheyWait) {
  Nodes nodes("3");
  nodes.start_ranks(kOneRank, {});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 2 of 3 nodes", soon()));
  nodes.start_ranks(kOneRank, {});
  ASSERT_TRUE(nodes[1].wait_for_error("waiting for 1 of 3 nodes", soon()));
  nodes[0].send_signal(SIGINT);
  EXPECT_EQ(nodes.finish(0).exit_code, 130);
  const auto other = nodes.finish(1);
  EXPECT_EQ(other.exit_code, 130);
  EXPECT_THAT(other.error, HasSubstr("): ended by SIGINT"));
  EXPECT_THAT(other.error, Not(HasSubstr("lost")));
}

TEST(Nodes, RestartTogetherWithKeysOfTheirOwn) {
  Nodes nodes("2");
  const Strings options{"--nproc",         "1",    "--max-restarts", "2",
                        "--restart-delay", "0.05", "--ready-after",  "0"};
  // Fails in the first round on rank 1.
  const std::string script =
      "echo $DLAUNCH_STORE_PREFIX restart $TORCHELASTIC_RESTART_COUNT; "
      "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then [ $RANK = 1 ] && exit 3; exec sleep 300; fi";
  nodes.start(options, {"sh", "-c", script});
  nodes.start(options, {"sh", "-c", script});
  for (std::size_t node = 0; node < 2; ++node) {
    const auto result = nodes.finish(node);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_THAT(result.out, EndsWith("attempt 1/ restart 1\n"));
    EXPECT_THAT(result.error, HasSubstr("failed with exit code 3"));
    EXPECT_THAT(result.error, HasSubstr("restart in 0.05 s"));
  }
}

// A node that is slow to answer is named instead, so the question is repeated.
class NodesThatHang : public ::testing::Test {
 protected:
  void SetUp() override {
    const Strings program{built_program("comm_rank"),
                          "connect",
                          "only=2",
                          "out=up",
                          "pause",
                          "only=all",
                          "out=up",
                          "barrier"};
    nodes_.start({"--nproc", "2", "--node-rank", "0", "--stall-after", "0"}, program);
    nodes_.start({"--nproc", "1", "--node-rank", "1", "--stall-after", "0"}, program);
    ASSERT_TRUE(nodes_[0].wait_for_output("0 up\n", soon()));
    ASSERT_TRUE(nodes_[0].wait_for_output("1 up\n", soon()));
    ASSERT_TRUE(nodes_[1].wait_for_output("2 up\n", soon()));
  }
  void TearDown() override {
    if (nodes_.size() == 2) nodes_[0].send_signal(SIGTERM);
    for (std::size_t node = 0; node < nodes_.size(); ++node) nodes_.finish(node);
  }

  Nodes nodes_{"2"};
};

TEST_F(NodesThatHang, AreShownTogetherByStatusOnAnyOfThem) {
  for (const std::size_t node : {0, 1}) {
    const Command status{.arguments = {built_program("dlaunch"), "status", "--no-stacks",
                                       std::to_string(nodes_[node].pid())}};
    const auto shows_all = [&] {
      const std::string said = run_command(status, soon()).out;
      return said.find("ranks 0, 1: in barrier #") != std::string::npos &&
             said.find("rank 2: in no collective") != std::string::npos &&
             said.find(" of world/1: rank 2\n") != std::string::npos;
    };
    const Deadline deadline = soon();
    bool shown = false;
    while (!(shown = shows_all()) && !deadline.expired()) {
    }
    EXPECT_TRUE(shown) << run_command(status, soon()).out;
  }
}

TEST_F(NodesThatHang, AreShownTogetherWithStacksAtSigquit) {
  const Deadline deadline = soon();
  do {
    nodes_[1].send_signal(SIGQUIT);
  } while (!nodes_[1].wait_for_error("ranks 0, 1: in barrier #", Deadline::after(5s)) &&
           !deadline.expired());
  // On a loaded machine a debugger may need all of the time that it is given for each rank.
  EXPECT_TRUE(nodes_[1].wait_for_error("stack of rank 0 (pid ", Deadline::after(100s)))
      << nodes_[1].error();
}

TEST(NodesExplained, SayFromWhereEachValueCame) {
  Nodes nodes("1");
  Command command = nodes.command({"--nproc", "1", "--explain"}, {"true"});
  command.environment = {{"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.error,
              AllOf(HasSubstr("started by: Slurm"), HasSubstr("nodes: 1, from --nnodes")));
}

// More tasks than nodes: not a way to start dlaunch on several nodes, but one node is one node.
TEST(NodesExplained, AreOneWhateverTheClusterSays) {
  Command command{.arguments = {built_program("dlaunch"), "--nproc", "1", "--nnodes", "1", "true"},
                  .environment = {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}};
  EXPECT_EQ(run_command(command).exit_code, 0);
  command.arguments.erase(command.arguments.begin() + 3, command.arguments.begin() + 5);
  EXPECT_EQ(run_command(command).exit_code, 125);
}

}  // namespace
}  // namespace dlaunch::testing
