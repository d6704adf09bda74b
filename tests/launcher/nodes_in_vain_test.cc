// Nodes that do not come to a common start, and are told why.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/ranks/free_port.h"
#include "tests/launcher/node_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(NodesInVain, AnUnreachableEndpointIsNamed) {
  Nodes nodes("2", "127.0.0.2:9");
  Command command = nodes.command({"--nproc", "1", "--rdzv-timeout", "1"}, {"true"});
  // 127.0.0.2 is this host's, so use an address that is not.
  for (std::string& word : command.arguments) {
    if (word == "127.0.0.2:9") word = "192.0.2.1:9";  // reserved for documentation
  }
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 123);
  EXPECT_THAT(result.error, HasSubstr("nobody answers at 192.0.2.1:9"));
}

TEST(NodesInVain, WhyTheStoreCouldNotBeHostedIsSaid) {
  const int other = ::socket(AF_INET, SOCK_STREAM, 0);  // has the port, and says nothing
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(other, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(other, 1), 0);
  ASSERT_EQ(::getsockname(other, reinterpret_cast<sockaddr*>(&address), &size), 0);
  Nodes nodes("2", "127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  nodes.start_ranks({"--nproc", "1", "--rdzv-timeout", "0.5"}, {"out=never"});
  const auto result = nodes.finish(0);
  EXPECT_EQ(result.exit_code, 123);
  EXPECT_THAT(result.error,
              AllOf(HasSubstr("nobody answers at 127.0.0.1:"),
                    HasSubstr("nor could this node host it"), HasSubstr("Address already in use")));
  ::close(other);
}

TEST(NodesInVain, TooFewNodesAreCounted) {
  Nodes nodes("3");
  nodes.start_ranks({"--nproc", "1", "--rdzv-timeout", "2"}, {"out=never"});
  const auto result = nodes.finish(0);
  EXPECT_EQ(result.exit_code, 123);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.error, HasSubstr("only 1 of 3 nodes came within 2.00 s"));
}

TEST(NodesInVain, WhereAnEndpointNamesNoMachineTheOthersNeedOne) {
  Nodes nodes("2", "0.0.0.0:" + std::to_string(*find_free_port()));
  nodes.start_ranks({"--nproc", "1", "--rdzv-timeout", "2"}, {"out=never"});
  EXPECT_THAT(
      nodes.finish(0).error,
      HasSubstr("only 1 of 2 nodes came within 2.00 s; 0.0.0.0 means a different machine on every "
                "node: give --rdzv-endpoint a name or address that the other nodes reach"));
}

// As where a machine was copied with its /etc/hosts.
TEST(NodesInVain, WhereAnotherHostsNameIsTakenForThisOneItIsSaid) {
  Nodes nodes("2", "0x7f000001:" + std::to_string(*find_free_port()));  // a name for 127.0.0.1
  nodes.start_ranks({"--nproc", "1", "--rdzv-timeout", "2"}, {"out=never"});
  EXPECT_THAT(nodes.finish(0).error,
              HasSubstr("only 1 of 2 nodes came within 2.00 s; 0x7f000001 is 127.0.0.1 here, so "
                        "this node hosts the store: if 0x7f000001 is another host, correct that "
                        "in /etc/hosts"));
}

TEST(NodesInVain, AnotherSecretIsRefused) {
  Nodes nodes("2");
  nodes.start_ranks(kOneRank, {});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2 nodes", soon()));
  Nodes stranger("2", nodes.endpoint());
  const auto result = run_command(stranger.command(kOneRank, {"true"}));
  EXPECT_EQ(result.exit_code, 123);
  EXPECT_THAT(result.error,
              AllOf(HasSubstr("refused this job's token: do all nodes have the same secret"),
                    Not(HasSubstr("nor could this node"))));
  nodes.start_ranks(kOneRank, {});
  EXPECT_EQ(nodes.finish(0).exit_code, 0);  // unimpressed
}

TEST(NodesInVain, AfterAnotherSecretTheAdviceIsAboutSecrets) {
  Nodes nodes("2");
  nodes.start_ranks({"--nproc", "1", "--rdzv-timeout", "3"}, {"out=never"});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2 nodes", soon()));
  Nodes stranger("2", nodes.endpoint());
  EXPECT_EQ(run_command(stranger.command(kOneRank, {"true"})).exit_code, 123);
  EXPECT_THAT(nodes.finish(0).error,
              HasSubstr("only 1 of 2 nodes came within 3.00 s; a connection was refused, see "
                        "above: do all nodes have the same secret (--token-file, DLAUNCH_TOKEN)?"));
}

TEST(NodesInVain, TwoThatClaimOneNodeRankAreNamed) {
  Nodes nodes("2");
  nodes.start_ranks({"--nproc", "1", "--node-rank", "1"}, {});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2 nodes", soon()));
  const auto result = run_command(nodes.command({"--nproc", "1", "--node-rank", "1"}, {"true"}));
  EXPECT_EQ(result.exit_code, 123);
  EXPECT_THAT(result.error, HasSubstr("two nodes claim node rank 1: "));
  ASSERT_TRUE(nodes[0].wait_for_error("refused: two nodes claim node rank 1", soon()));
  nodes.start_ranks({"--nproc", "1", "--node-rank", "0"}, {});
  EXPECT_EQ(nodes.finish(0).exit_code, 0);
}

TEST(NodesInVain, ADifferentNumberOfNodesIsRefused) {
  Nodes nodes("2");
  nodes.start_ranks(kOneRank, {});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2 nodes", soon()));
  Command command = nodes.command(kOneRank, {"true"});
  command.arguments[2] = "3";
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 123);
  EXPECT_THAT(result.error, HasSubstr("--nnodes 3"));
}

TEST(NodesInVain, ANodeThatHasNotEnoughForItsPartSaysSo) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need all address space";
  Nodes nodes("2");
  const Command command = nodes.command({"--nproc", "1"}, {"/bin/true"});
  for (const int threads : {1, 2, 3}) {  // which find the store, host it, and give signs of life
    const auto result = run_command(with_room_for_threads(threads, command));
    EXPECT_EQ(result.exit_code, 125) << threads;
    EXPECT_THAT(result.error, HasSubstr("no thread could be started: "));
  }
}

TEST(NodesInVain, AProgramThatOneNodeDoesNotHaveEndsTheJob) {
  if (kVforkIsFork) GTEST_SKIP() << kVforkIsForkText;
  Nodes nodes("2");
  nodes.start_ranks(kOneRank, {"pause"});
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2 nodes", soon()));
  const std::string broken = ::testing::TempDir() + "/no_interpreter." + std::to_string(getpid());
  std::ofstream(broken) << "#!/nowhere/sh\n";
  chmod(broken.c_str(), 0755);
  nodes.start(kOneRank, {broken});
  EXPECT_EQ(nodes.finish(1).exit_code, 127);
  const auto other = nodes.finish(0);
  EXPECT_EQ(other.exit_code, 127) << other.error;
  EXPECT_THAT(other.error, HasSubstr(broken));
  unlink(broken.c_str());
}

TEST(NodesInVain, OptionsThatDoNotFitAreRefusedAtOnce) {
  const auto error_of = [](Strings arguments) {
    arguments.insert(arguments.begin(), built_program("dlaunch"));
    const auto result =
        run_command({.arguments = arguments, .unset = {"DLAUNCH_TOKEN", "DLAUNCH_TOKEN_FILE"}});
    EXPECT_EQ(result.exit_code, 125);
    return result.error;
  };
  EXPECT_THAT(error_of({"--nproc", "1", "--nnodes", "2", "true"}), HasSubstr("--rdzv-endpoint"));
  EXPECT_THAT(error_of({"--nproc", "1", "--nnodes", "2", "--rdzv-endpoint", "h:1", "true"}),
              HasSubstr("--token-file"));
  EXPECT_THAT(error_of({"--nproc", "1", "--nnodes", "x", "true"}), HasSubstr("'x'"));
  for (const char* none : {"http://x:1", "[::1:29999", "[]:29999", "]:29999", "fd00::2:29500"}) {
    EXPECT_THAT(error_of({"--nproc", "1", "--nnodes", "2", "--rdzv-endpoint", none, "true"}),
                HasSubstr("is no host; it is HOST:PORT, and an address of IPv6 has brackets"))
        << none;
  }
  EXPECT_THAT(error_of({"--nproc", "1", "--nnodes", "2", "--rdzv-endpoint", "h:1", "--port",
                        "29500", "true"}),
              HasSubstr("--port is for one node"));
}

}  // namespace
}  // namespace dlaunch::testing
