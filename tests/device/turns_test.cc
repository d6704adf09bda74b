// How many turns of a shared device collectives take, and what is known of a stream that waits.
//
// Why p ranks need M (p - 1) + p turns for M meetings, if they wait for nothing but meetings: every
// rank must have come to a meeting before one can leave it, and a rank that runs leaves all that it
// can and comes to the next. So in the first p turns all come to the first meeting, and the last of
// them leaves it and comes to the second one in the same turn. From then on a rank is a meeting
// ahead, so p - 1 turns bring the others there; again the last of them leaves it. When the last
// meeting is left for the first time, which is in turn p + (M - 1)(p - 1), the p - 1 others have
// yet to leave it.
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/device/path_choice.h"
#include "tests/device/shared_device.h"

namespace dlaunch::testing {
namespace {

constexpr std::size_t kStatistics = 1024;  // floats: a small vector

// A ResNet-18 for 10 classes has 11,173,962 parameters, in buckets of at most 1 MiB, the first, and
// 25: the last layer and batch norm; the last block and the shortcut before it; the rest, since
// convolutions are not divided.
constexpr std::size_t kBuckets[] = {6'154, 4'852'736, 6'315'072};
constexpr int kBatchNorms = 20;

int turns_of(int meetings, int ranks) {
  return meetings * (ranks - 1) + ranks;
}

class Turns : public ::testing::TestWithParam<int> {
 protected:
  static int ranks() { return GetParam(); }
  static bool few() { return ranks() <= 3; }

  static MemoryPathOptions options() {
    std::vector<DeviceFacts> facts(static_cast<std::size_t>(ranks()));
    return memory_options_for(facts);  // all have the same device
  }

  // Few ranks meet once for each bucket. More of them have slots of 16 MiB: the small bucket is
  // done in one shot; of the others both rounds are done in slices, for which ranks meet twice.
  static int meetings_of_buckets() { return few() ? 3 : 1 + 2 * 2 + 2 * 2; }

  /// A training step whose calls are recorded, and so are in one line.
  void queue_step() {
    for (int i = 0; i < kBatchNorms; ++i) device_.all_reduce_on_all(kStatistics);  // forward
    for (int i = 0; i < kBatchNorms; ++i) {
      device_.all_reduce_on_all(kStatistics);
      if (i == 0) device_.all_reduce_on_all(kBuckets[0], DeviceLane::kAsync);
      if (i == 5) device_.all_reduce_on_all(kBuckets[1], DeviceLane::kAsync);
    }
    device_.all_reduce_on_all(kBuckets[2], DeviceLane::kAsync);
  }

  SharedDevice device_{GetParam(), options()};
};

TEST_P(Turns, OfOneCollective) {
  device_.all_reduce_on_all(kStatistics);
  EXPECT_EQ(device_.take_turns(), turns_of(1, ranks()));
  EXPECT_TRUE(device_.all_done());
}

TEST_P(Turns, OfManyCollectivesAreOneMeetingEach) {
  for (int i = 0; i < 2 * kBatchNorms; ++i) device_.all_reduce_on_all(kStatistics);
  EXPECT_EQ(device_.take_turns(), turns_of(2 * kBatchNorms, ranks()));
  EXPECT_TRUE(device_.all_done());
}

TEST_P(Turns, OfGradientsInBuckets) {
  for (const std::size_t bucket : kBuckets) device_.all_reduce_on_all(bucket, DeviceLane::kAsync);
  EXPECT_EQ(device_.take_turns(), turns_of(meetings_of_buckets(), ranks()));
  EXPECT_TRUE(device_.all_done());
}

// Of 2 ranks 45, of 3, 4 and 5: 89, 151 and 201.
TEST_P(Turns, OfATrainingStep) {
  queue_step();
  EXPECT_EQ(device_.take_turns(), turns_of(2 * kBatchNorms + meetings_of_buckets(), ranks()));
  EXPECT_TRUE(device_.all_done());
}

// Where it begins anew the buckets' lane comes to the slot that it has used last, as it has an odd
// number of rounds; the meetings in between have made that free.
TEST_P(Turns, OfATrainingStepThatIsRepeated) {
  queue_step();
  device_.repeat_on_all();
  const int meetings = 2 * (2 * kBatchNorms + meetings_of_buckets());
  EXPECT_EQ(device_.take_turns(), turns_of(meetings, ranks()));
  EXPECT_TRUE(device_.all_done());
}

// The rank that comes last leaves in the same turn, but then has to wait until all have. They do in
// p - 1 turns, and the last of them comes to the next meeting in the same turn, which the others do
// in p - 1 more. Once in the beginning nobody has come yet.
TEST_P(Turns, AreTwiceAsManyWhereTheSameSlotComesAgain) {
  device_.all_reduce_on_all(kStatistics);
  for (int i = 0; i < 3; ++i) device_.repeat_on_all();  // 2, 4, 8 times
  EXPECT_EQ(device_.take_turns(), 8 * 2 * (ranks() - 1) + 1);
  EXPECT_TRUE(device_.all_done());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Turns, ::testing::Values(2, 3, 4, 5));

// All but the last rank make one call more than that one, with either slot.
TEST(WaitingStream, TellsWhoHasNotCome) {
  SharedDevice device(4, {});
  for (int calls = 0; calls < 4; ++calls) {
    for (int rank = 0; rank < 3; ++rank) device.all_reduce(rank, kStatistics, DeviceLane::kHigh);
    (void)device.take_turns();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(device.path(rank).awaited(DeviceLane::kHigh), 3) << "rank " << rank;
      EXPECT_EQ(device.path(rank).awaited(DeviceLane::kAsync), std::nullopt);
    }
    EXPECT_EQ(device.path(3).awaited(DeviceLane::kHigh), std::nullopt);
    device.all_reduce(3, kStatistics, DeviceLane::kHigh);
    (void)device.take_turns();
    ASSERT_TRUE(device.all_done());
    EXPECT_EQ(device.path(0).awaited(DeviceLane::kHigh), std::nullopt);
  }
}

TEST(WaitingStream, TellsWhoHasNotReducedItsSlice) {
  SharedDevice device(3, {.slot_bytes = 1 << 16, .one_shot_bytes = 0});
  for (int calls = 0; calls < 2; ++calls) {
    device.all_reduce_on_all(kStatistics);
    for (int rank = 0; rank < 3; ++rank) (void)device.stream(rank).run();
    EXPECT_EQ(device.path(2).awaited(DeviceLane::kBlocking), 0);
    (void)device.stream(0).run();
    EXPECT_EQ(device.path(0).awaited(DeviceLane::kBlocking), 1) << "rank 2 has";
    EXPECT_EQ(device.path(2).awaited(DeviceLane::kBlocking), 1);
    (void)device.take_turns();
    ASSERT_TRUE(device.all_done());
  }
}

TEST(WaitingStream, TellsWhoHasNotReadASlotThatComesAgain) {
  SharedDevice device(3, {});
  device.all_reduce_on_all(kStatistics);
  device.repeat_on_all();
  for (int rank = 0; rank < 3; ++rank) (void)device.stream(rank).run();
  EXPECT_EQ(device.path(2).awaited(DeviceLane::kBlocking), 0);
  (void)device.stream(0).run();
  EXPECT_EQ(device.path(0).awaited(DeviceLane::kBlocking), 1) << "rank 2 has";
  EXPECT_EQ(device.path(2).awaited(DeviceLane::kBlocking), 1);
  (void)device.take_turns();
  EXPECT_TRUE(device.all_done());
}

// With either slot, any phase, and calls of several lanes; each release lets a stream go past one
// wait at least.
TEST(WaitingStream, RunsOnWhenItIsReleased) {
  SharedDevice device(3, {.slot_bytes = 1 << 12, .one_shot_bytes = 1 << 10});
  for (int i = 0; i < 3; ++i) {
    for (const DeviceLane lane : kAllDeviceLanes) {
      for (const int rank : {0, 1}) device.all_reduce(rank, 3 * kStatistics, lane);
    }
  }
  (void)device.take_turns();
  EXPECT_FALSE(device.all_done());
  for (const int rank : {0, 1}) {
    for (int tries = 0; tries < 1000 && !device.stream(rank).is_done(); ++tries) {
      device.path(rank).release();
      (void)device.stream(rank).run();
    }
  }
  EXPECT_TRUE(device.all_done());
}

}  // namespace
}  // namespace dlaunch::testing
