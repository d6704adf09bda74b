// Jobs of several nodes where nodes come from elsewhere: hosts with a network between them, which
// are network namespaces, and MPI's launchers. Skipped, with the reason, where the machine does not
// allow that.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/descriptor.h"
#include "tests/comm/hosts_test.h"
#include "tests/launcher/node_runs.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Strings kTellsItsMaster{"sh", "-c", "echo $RANK master $MASTER_ADDR; exec \"$0\"",
                              built_program("sequential_print")};

class NodesOnHosts : public HostsTest {
 protected:
  // The endpoint is on host 1, which is not the first to come.
  static std::string endpoint() { return NetworkHosts::address(1) + ":29500"; }

  // dlaunch starts on a host, with this thread there meanwhile.
  void start(Nodes& nodes, int host, const Strings& program, int node_rank = -1,
             const Strings& more = {}) const {
    const Descriptor home(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    network().enter(host);
    Strings given{"--nproc", "2", "--node-rank", std::to_string(node_rank < 0 ? host : node_rank)};
    given.insert(given.end(), more.begin(), more.end());
    nodes.start(given, program);
    ASSERT_EQ(setns(home.get(), CLONE_NEWNET), 0);
  }

  // Lets programs on a host bind sockets to addresses of others.
  bool allow_any_address(int host) const {
    bool done = false;
    std::thread([&] {
      network().enter(host);
      std::ofstream setting("/proc/sys/net/ipv4/ip_nonlocal_bind");
      setting << "1" << std::flush;
      done = setting.good();
    }).join();
    return done;
  }
};

TEST_F(NodesOnHosts, AreOneJobWhoseRanksReachEachOther) {
  Nodes nodes("3", endpoint());
  for (int host = 0; host < kHosts; ++host) {
    start(nodes, host, kTellsItsMaster);
  }
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const auto result = nodes.finish(node);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_THAT(result.out, HasSubstr(std::to_string(2 * node) + " master 10.83.0.1\n"));
  }
}

TEST_F(NodesOnHosts, TellTheOthersTheAddressThatTheUserHasChosen) {
  Nodes nodes("2", endpoint());
  const Strings program{"sh", "-c", "echo $RANK at $DLAUNCH_INTERFACE master $MASTER_ADDR"};
  for (const int host : {0, 1}) start(nodes, host, program, -1, {"--local-addr", "10.84.0.0/24"});
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const auto result = nodes.finish(node);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    const std::string address = NetworkHosts::other_address(static_cast<int>(node));
    EXPECT_THAT(result.out,
                HasSubstr(std::to_string(2 * node) + " at " + address + " master 10.84.0.1\n"));
  }
}

// The node with the store only: elsewhere it would be another host's own store.
TEST_F(NodesOnHosts, AreOneJobWhereTheOneWithTheStoreWasGivenAllOfItsAddresses) {
  Nodes nodes("2", "0.0.0.0:29500");
  start(nodes, 1, kTellsItsMaster, 0);
  nodes.meet_at(endpoint());
  start(nodes, 0, kTellsItsMaster, 1);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const auto result = nodes.finish(node);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_THAT(result.out, HasSubstr(std::to_string(2 * node) + " master 10.83.0.2\n"));
  }
}

// As where addresses move between hosts: a node can bind a socket to one that is not its own. If it
// took itself for the host of the store, its end would be the job's.
TEST_F(NodesOnHosts, KnowWhichAddressIsTheirOwnWhereAnyCanBeBound) {
  if (!allow_any_address(0)) GTEST_SKIP() << "ip_nonlocal_bind cannot be set here";
  const Strings rank{built_program("test_rank"), "env=DLAUNCH_STORE_PREFIX", "pause"};
  Nodes nodes("1:2", endpoint());
  start(nodes, 1, rank);
  ASSERT_TRUE(nodes[0].wait_for_output("=attempt 0/\n", soon()));
  start(nodes, 0, rank);
  ASSERT_TRUE(nodes[1].wait_for_output("=attempt 1/\n", soon()));
  nodes[1].send_signal(SIGTERM);
  EXPECT_EQ(nodes.finish(1).exit_code, 143);
  EXPECT_TRUE(nodes[0].wait_for_output("=attempt 2/\n", soon())) << nodes[0].error();
  nodes[0].send_signal(SIGTERM);
  EXPECT_EQ(nodes.finish(0).exit_code, 143);
}

TEST_F(NodesOnHosts, EndEverywhereWithinSecondsWhenOneIsCutOff) {
  const std::string mark = fresh_mark();
  Nodes nodes("3", endpoint());
  for (int host = 0; host < kHosts; ++host) {
    start(nodes, host, {built_program("test_rank"), mark, "out=up", "pause"});
  }
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    ASSERT_TRUE(nodes[node].wait_for_output("up\nup\n", soon()));
  }
  ASSERT_TRUE(network().set_link(2, /*up=*/false).ok());
  for (const std::size_t node : {std::size_t{0}, std::size_t{1}}) {
    const auto result = nodes.finish(node);
    EXPECT_EQ(result.exit_code, 122) << result.error;
    EXPECT_THAT(result.error, AllOf(HasSubstr("node 2 ("), HasSubstr("is lost: no sign of life")));
  }
  const auto cut_off = nodes.finish(2);
  EXPECT_EQ(cut_off.exit_code, 122) << cut_off.error;
  EXPECT_THAT(cut_off.error, HasSubstr("the node with the store, 10.83.0.2:29500, is lost"));
  EXPECT_TRUE(all_gone(mark, soon()));
}

TEST_F(NodesOnHosts, KeepTheStoreFromStrangersOnTheNetwork) {
  Nodes nodes("2", endpoint());
  start(nodes, 1, {"true"}, 0);
  ASSERT_TRUE(nodes[0].wait_for_error("waiting for 1 of 2 nodes", soon()));
  Nodes strangers("2", endpoint());
  start(strangers, 2, {"true"}, 1);
  const auto refused = strangers.finish(0);
  EXPECT_EQ(refused.exit_code, 123);
  EXPECT_THAT(refused.error, HasSubstr("refused this job's token"));
  nodes[0].send_signal(SIGTERM);
  EXPECT_EQ(nodes.finish(0).exit_code, 143);
}

// The first of these programs that is installed; empty: none.
std::string installed(const Strings& paths) {
  for (const std::string& path : paths) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

CompletedProcess run_under(const Strings& launcher) {
  const TokenFile token;
  Command command{.arguments = launcher, .environment = {{"DLAUNCH_TOKEN_FILE", token.path()}}};
  command.arguments.insert(command.arguments.end(),
                           {built_program("dlaunch"), "--explain", "--bind", "none", "--nproc", "2",
                            built_program("test_rank"), "env=WORLD_SIZE"});
  return run_command(command);
}

void expect_three_nodes(const CompletedProcess& result, const std::string& manager) {
  EXPECT_EQ(result.exit_code, 0) << result.error;
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_THAT(result.out, HasSubstr(std::to_string(rank) + " WORLD_SIZE=6\n"));
  }
  EXPECT_THAT(result.error, HasSubstr("dlaunch: started by: " + manager + "\n"));
}

TEST(NodesUnderMpi, OfOpenMpiAreFoundByTheirVariables) {
  const std::string mpirun = installed({"/usr/bin/mpirun.openmpi"});
  if (mpirun.empty()) GTEST_SKIP() << "Open MPI's mpirun is not installed";
  expect_three_nodes(run_under({mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "3"}),
                     "Open MPI");
}

TEST(NodesUnderMpi, OfMpichAreFoundByTheirVariables) {
  const std::string mpiexec = installed({"/usr/bin/mpiexec.hydra"});
  if (mpiexec.empty()) GTEST_SKIP() << "MPICH's mpiexec is not installed";
  expect_three_nodes(run_under({mpiexec, "-n", "3"}), "MPI (PMI)");
}

}  // namespace
}  // namespace dlaunch::testing
