// What becomes of a job over MPI when something goes wrong: real processes under mpiexec.
#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/subprocess.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

CompletedProcess run_under_mpi(int ranks, const std::vector<std::string>& program) {
  Command command{.arguments = {MPIEXEC, "-n", std::to_string(ranks)},
                  .environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                  {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                  {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                  {"OMPI_MCA_mpi_yield_when_idle", "1"},
                                  {"MPIEXEC_TIMEOUT", "25"}}};
  command.arguments.insert(command.arguments.end(), program.begin(), program.end());
  CompletedProcess result = run_command(command, Deadline::after(30s));
  EXPECT_FALSE(result.timed_out) << result.out << result.error;
  return result;
}

CompletedProcess run_three_ranks(const std::string& scenario) {
  return run_under_mpi(3, {built_program("mpi_failing_ranks"), scenario});
}

TEST(MpiWorld, IsNotThatOfRanksOfADlaunchUnderMpirun) {
  const std::vector<std::string> rank{built_program("mpi_failing_ranks"), "who_has_started_it"};
  EXPECT_EQ(run_under_mpi(1, rank).out, "mpirun\n");
  const auto result = run_under_mpi(1, {built_program("dlaunch"), "--standalone", "--nproc", "2",
                                        "--bind", "none", rank[0], rank[1]});
  EXPECT_EQ(result.out, "dlaunch\ndlaunch\n") << result.error;
}

TEST(MpiFailures, TimeOutNamesTheCallAndIsToldToAllRanks) {
  const auto result = run_three_ranks("time_out");
  EXPECT_THAT(result.out, AllOf(ContainsRegex("rank 0: .*all_reduce sum f32\\[5\\].*timed out"),
                                ContainsRegex("rank 1: .*all_reduce sum f32\\[5\\].*timed out"),
                                ContainsRegex("rank 2: recv f32\\[5\\] from rank 0 tag 9: .*timed "
                                              "out \\(reported by rank [01]\\)")))
      << result.error;
}

TEST(MpiFailures, OfAPartSayWhichRanksOfTheWorldTheyMean) {
  const auto result = run_three_ranks("time_out_in_a_part");
  EXPECT_THAT(result.out,
              HasSubstr("rank 1: in part world/2.5, whose rank 1 is rank 2 of the world: "
                        "recv f32[5] from rank 1 tag 0: timed out"))
      << result.error;
}

TEST(MpiFailures, AbortEndsTheCallsOfAllRanksWithItsReason) {
  const auto result = run_three_ranks("abort");
  EXPECT_THAT(result.out,
              AllOf(ContainsRegex("rank 0: all_reduce.*the disk is full \\(reported by rank 1\\)"),
                    ContainsRegex("rank 1: .*failed earlier: the disk is full"),
                    ContainsRegex("rank 2: barrier.*the disk is full \\(reported by rank 1\\)")))
      << result.error;
}

TEST(MpiFailures, WhatMpiStillUsesIsKeptWhenTheLastCommunicatorGoes) {
  const auto result = run_three_ranks("outlive_the_communicator");
  EXPECT_THAT(result.out, AllOf(ContainsRegex("rank 0: all_reduce sum bf16\\[262144\\].*timed out"),
                                HasSubstr("rank 0: as it was"), HasSubstr("rank 1: as it was"),
                                HasSubstr("rank 2: as it was")))
      << result.error;
}

TEST(MpiFailures, DeathOfARankEndsTheJob) {
  const auto result = run_three_ranks("die");
  EXPECT_NE(result.exit_code, 0);
}

TEST(MpiFailures, MessagesOfAnotherLengthAreRefused) {
  EXPECT_THAT(run_three_ranks("send_too_few").out,
              HasSubstr("rank 1: recv f32[5] from rank 0 tag 0: peer 0: sent 3 elements"));
  EXPECT_THAT(run_three_ranks("send_bytes").out,
              HasSubstr("rank 1: recv i32[4] from rank 0 tag 0: peer 0: sent 6 bytes"));
  EXPECT_THAT(run_three_ranks("send_too_many").out,
              ContainsRegex("rank 1: recv f32\\[3\\] from rank 0 tag 0: MPI_Test: .*truncated"));
}

TEST(MpiFailures, SplitDoesNotWaitForARankThatHasGivenUp) {
  const auto result = run_three_ranks("split_too_late");
  EXPECT_THAT(result.out, AllOf(ContainsRegex("rank 0: split: barrier.*timed out"),
                                ContainsRegex("rank 1: split: .*reported by rank 0"),
                                ContainsRegex("rank 2: split: .*reported by rank 0")))
      << result.error;
}

TEST(MpiFailures, MessagesToItselfThatNobodyReceivesDoNotKeepARank) {
  const auto result = run_three_ranks("never_receive");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.error;
}

TEST(MpiFailures, TagThatMpiCannotCarryIsRefused) {
  const auto result = run_three_ranks("use_a_large_tag");
  EXPECT_THAT(result.out, HasSubstr("is too large for this MPI"));
  EXPECT_EQ(result.exit_code, 0) << "nothing failed\n" << result.out << result.error;
}

TEST(MpiFailures, MessageOfAnyRankThatMpiCannotCountIsRefused) {
  const auto result = run_three_ranks("receive_too_many_of_any");
  EXPECT_THAT(result.out, HasSubstr("recv: from any rank MPI can take 2147483647 elements"));
  EXPECT_EQ(result.exit_code, 0) << "nothing failed\n" << result.out << result.error;
}

}  // namespace
}  // namespace dlaunch::testing
