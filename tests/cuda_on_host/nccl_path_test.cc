// NcclPath beside the contract: how it ends, what is recorded, parts of one size.
#include <chrono>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda_on_host/nccl_ranks.h"
#include "tests/device/failing_ranks.h"
#include "tests/device/fake_stream.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::Eq;
using ::testing::HasSubstr;

class NcclPathOf : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  int last() const { return GetParam() - 1; }
};

// The compute stream waits for the lane of what was started, and NCCL to end one communicator for
// what the device was given before.
TEST_P(NcclPathOf, RankThatDoesNotCallFailsOperationsOfTwoLanes) {
  run_nccl_ranks(world(), 60s, [&](FakeRank rank) {
    Ones first(rank, 1000);
    Ones second(rank, 10);
    EXPECT_TRUE(rank.communicator->barrier().ok());
    rank.communicator->set_timeout(2s);
    if (rank.communicator->rank() != last()) {
      EXPECT_TRUE(rank.communicator->start_all_reduce(first.buffer()).wait().ok());
      EXPECT_TRUE(rank.communicator->all_reduce(second.buffer()).ok()) << "it is only queued";
    }
    const Status status = failure_of(rank);
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("all_reduce #1 sum f32[1000] over nccl"));
    expect_the_streams_run_on(rank);
  });
}

TEST_P(NcclPathOf, FailureDoesNotWaitForWhatIsRecorded) {
  run_nccl_ranks(world(), 60s, [&](FakeRank rank) {
    Ones data(rank, 100);
    rank.device->begin_capture();
    EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok());
    const auto recording = rank.device->end_capture();
    rank.device->replay(*recording);
    ASSERT_TRUE(rank.device->synchronise());
    EXPECT_EQ(data.values()[99], static_cast<float>(world()));
    tell_the_last_rank(*rank.communicator);
    if (rank.communicator->rank() == last())
      rank.communicator->abort(Status(StatusCode::kIo, "the disk is full"));
    EXPECT_THAT(failure_of(rank).to_string(), HasSubstr("the disk is full"));
    EXPECT_FALSE(rank.communicator->all_reduce(data.buffer()).ok());
    EXPECT_FALSE(rank.communicator->start_all_reduce(data.buffer()).wait().ok());
  });
}

TEST_P(NcclPathOf, RepeatsWhatWasRecordedOnAllLanesAlsoInTheOrderOfRanks) {
  run_nccl_ranks(world(), 60s, [&](FakeRank rank) {
    Ones native(rank, 1000);
    Ones in_order(rank, 3001);  // by way of scratch memory
    Ones started(rank, 500);
    const auto all = [&] {
      Communicator& comm = *rank.communicator;
      Work work = comm.start_all_reduce(started.buffer());
      EXPECT_TRUE(comm.all_reduce(native.buffer()).ok());
      comm.set_reduce_order(ReduceOrder::kRanks);
      EXPECT_TRUE(comm.all_reduce(in_order.buffer()).ok());
      comm.set_reduce_order(ReduceOrder::kAny);
      EXPECT_TRUE(work.wait().ok());
    };
    all();
    rank.device->begin_capture();
    all();
    {
      const auto recording = rank.device->end_capture();
      rank.device->replay(*recording);
      all();
      rank.device->replay(*recording);
      ASSERT_TRUE(rank.device->synchronise());
    }
    const auto wanted = static_cast<float>(std::pow(world(), 4));
    EXPECT_THAT(std::vector<float>(native.values(), native.values() + 1000), Each(Eq(wanted)));
    EXPECT_THAT(std::vector<float>(in_order.values(), in_order.values() + 3001), Each(Eq(wanted)));
    EXPECT_THAT(std::vector<float>(started.values(), started.values() + 500), Each(Eq(wanted)));
  });
}

// As gradients and parameters that are sharded: parts are given, and the own part lies in place.
TEST_P(NcclPathOf, ScattersSumsAndGathersPartsInPlace) {
  for (const bool equal : {true, false}) {
    run_nccl_ranks(world(), 60s, [&](FakeRank rank) {
      Communicator& comm = *rank.communicator;
      const auto p = static_cast<std::size_t>(world());
      const auto own = static_cast<std::size_t>(comm.rank());
      std::vector<std::size_t> counts(p, 700);
      if (!equal) counts[p - 1] = 1;
      const std::size_t total = 700 * (p - 1) + counts[p - 1];
      Ones whole(rank, total);
      for (std::size_t i = 0; i < total; ++i) whole.values()[i] = static_cast<float>(i * (own + 1));
      const std::span<float> values(whole.values(), total);
      const std::span<float> part = values.subspan(700 * own, counts[own]);
      EXPECT_TRUE(comm.start_reduce_scatter(values, part, ReduceOp::kSum, counts).wait().ok());
      EXPECT_TRUE(comm.start_all_gather(part, values, counts).wait().ok());
      ASSERT_TRUE(rank.device->synchronise());
      for (std::size_t i = 0; i < total; ++i)
        ASSERT_EQ(values[i], static_cast<float>(i * p * (p + 1) / 2));
    });
  }
}

// The first part of the input is what others still send for.
TEST_P(NcclPathOf, ScattersSumsIntoAnyPartOfTheInput) {
  run_nccl_ranks(world(), 60s, [&](FakeRank rank) {
    const auto p = static_cast<std::size_t>(world());
    Ones whole(rank, 40 * p);
    const std::span<float> values(whole.values(), 40 * p);
    EXPECT_TRUE(rank.communicator->reduce_scatter(values, values.first(40), ReduceOp::kSum).ok());
    ASSERT_TRUE(rank.device->synchronise());
    EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 40),
                Each(Eq(static_cast<float>(p))));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, NcclPathOf, ::testing::Values(2, 3, 5));

}  // namespace
}  // namespace dlaunch::testing
