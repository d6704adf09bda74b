// What a rank is given: environment, stdin, descriptors, process group.
#include <fcntl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/ranks/rank_environment.h"
#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RankEnvironment, HasWhatTorchrunSetsAndWhatOurRuntimeNeeds) {
  const Strings names = {"RANK",
                         "LOCAL_RANK",
                         "ROLE_RANK",
                         "WORLD_SIZE",
                         "LOCAL_WORLD_SIZE",
                         "ROLE_WORLD_SIZE",
                         "GROUP_RANK",
                         "GROUP_WORLD_SIZE",
                         "ROLE_NAME",
                         "MASTER_ADDR",
                         "DLAUNCH_NODES",
                         "TORCHELASTIC_RESTART_COUNT",
                         "DLAUNCH_RESTARTED",
                         "OMP_NUM_THREADS",
                         "TORCHELASTIC_MAX_RESTARTS",
                         "TORCHELASTIC_USE_AGENT_STORE"};
  Strings actions = {"only=2"};
  for (const auto& name : names) actions.push_back("env=" + name);
  Command command = ranks_that(actions, 3);
  command.unset = {"OMP_NUM_THREADS"};
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(result.out,
            "2 RANK=2\n2 LOCAL_RANK=2\n2 ROLE_RANK=2\n"
            "2 WORLD_SIZE=3\n2 LOCAL_WORLD_SIZE=3\n2 ROLE_WORLD_SIZE=3\n"
            "2 GROUP_RANK=0\n2 GROUP_WORLD_SIZE=1\n2 ROLE_NAME=default\n"
            "2 MASTER_ADDR=127.0.0.1\n2 DLAUNCH_NODES=1\n2 TORCHELASTIC_RESTART_COUNT=0\n"
            "2 DLAUNCH_RESTARTED=0\n2 OMP_NUM_THREADS=1\n2 TORCHELASTIC_MAX_RESTARTS=0\n"
            "2 TORCHELASTIC_USE_AGENT_STORE=False\n");
}

TEST(RankEnvironment, NamesStoreTokenJobAndMasterPort) {
  const auto result = run_command(ranks_that(
      {"env=DLAUNCH_STORE", "env=DLAUNCH_TOKEN", "env=DLAUNCH_JOB_ID", "env=MASTER_PORT"}, 1));
  EXPECT_THAT(result.out, ::testing::MatchesRegex("0 DLAUNCH_STORE=127\\.0\\.0\\.1:[0-9]+\n"
                                                  "0 DLAUNCH_TOKEN=[0-9a-f]+\n"
                                                  "0 DLAUNCH_JOB_ID=[0-9a-f]+\n"
                                                  "0 MASTER_PORT=[0-9]+\n"));
}

TEST(RankEnvironment, KeepsTheUsersThreadCountAndOtherVariables) {
  Command command = ranks_that({"env=OMP_NUM_THREADS", "env=FLAVOUR"}, 1);
  command.environment = {{"OMP_NUM_THREADS", "3"}, {"FLAVOUR", "sweet = sour"}};
  EXPECT_EQ(run_command(command).out, "0 OMP_NUM_THREADS=3\n0 FLAVOUR=sweet = sour\n");
}

TEST(RankEnvironment, LeavesTheThreadCountOfASingleRankAlone) {
  Command command = ranks_that({"env=OMP_NUM_THREADS"}, 1);
  command.unset = {"OMP_NUM_THREADS"};
  EXPECT_EQ(run_command(command).out, "0 OMP_NUM_THREADS is not set\n");
}

TEST(RankEnvironment, LeavesTheThreadCountOfTheOnlyRankOfANodeAlone) {
  const char* const inherited[] = {nullptr};
  const std::string one_thread = "OMP_NUM_THREADS=1";
  EXPECT_THAT(rank_environment({.nodes = 2, .world = 2, .ranks = 1}, 0, inherited),
              Not(Contains(one_thread)));
  EXPECT_THAT(rank_environment({.nodes = 2, .world = 3, .ranks = 2}, 0, inherited),
              Contains(one_thread));
}

TEST(RankEnvironment, HasNoTraceOfAnOuterJob) {
  Command command = ranks_that({"only=1", "env=WORLD_SIZE", "env=DLAUNCH_TOKEN_FILE"}, 2);
  command.environment = {{"WORLD_SIZE", "77"}, {"DLAUNCH_TOKEN_FILE", "/nowhere"}};
  EXPECT_EQ(run_command(command).out, "1 WORLD_SIZE=2\n1 DLAUNCH_TOKEN_FILE is not set\n");
}

TEST(StandardInput, GoesToRankZeroOnly) {
  Command command = ranks_that({"stdin"}, 3);
  command.input = std::string(300'000, 'x');
  const auto result = run_command(command);
  EXPECT_THAT(result.out, HasSubstr("0 read 300000 bytes\n"));
  EXPECT_THAT(result.out, HasSubstr("1 read 0 bytes\n"));
  EXPECT_THAT(result.out, HasSubstr("2 read 0 bytes\n"));
}

TEST(Descriptors, AreThoseThatDlaunchInheritedAndNoOthers) {
  const auto bare = run_command({.arguments = {built_program("test_rank"), "count-fds"}});
  const int handed_down = fcntl(open("/dev/null", O_RDONLY | O_CLOEXEC), F_DUPFD, 100);
  const auto result = run_command(ranks_that({"count-fds"}, 8));
  close(handed_down);
  ASSERT_THAT(bare.out, ::testing::MatchesRegex("- has [0-9]+ descriptors\n"));
  const int before = std::atoi(bare.out.c_str() + 6);
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_THAT(result.out, HasSubstr(std::to_string(rank) + " has " + std::to_string(before + 1) +
                                      " descriptors\n"));
  }
}

TEST(StandardOutput, IsTheRanksOwnByteForByte) {
  const auto result = run_command(ranks_that({"zeros=100000", "out=tail"}, 1));
  EXPECT_EQ(result.out, std::string(100'000, '\0') + "tail\n");
  EXPECT_EQ(result.error, "");
}

TEST(StandardOutput, MayBeClosed) {
  Command command = ranks_that({"out=lost", "err=seen"}, 2);
  command.close_output = true;
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.error, HasSubstr("[rank 1] seen\n"));
  EXPECT_THAT(result.error, Not(HasSubstr("lost")));
}

}  // namespace
}  // namespace dlaunch::testing
