// The shared memory of a group as collectives use it: cells, slots, heaps, and waiting for them.
#include "transport/shm/shared_group.h"

#include <cstring>

#include <gtest/gtest.h>

#include "tests/transport/fabric.h"
#include "transport/loopback/loopback.h"

namespace dlaunch {
namespace {

using Channel = SharedGroup::Channel;

// Waits for a cell to reach a value.
class CellReached final : public Readiness {
 public:
  CellReached(const SharedCell& cell, std::uint64_t progress) : cell_(cell), progress_(progress) {}
  bool ready() const override {
    return cell_.progress.load(std::memory_order_acquire) >= progress_;
  }

 private:
  const SharedCell& cell_;
  std::uint64_t progress_;
};

::testing::AssertionResult await(Endpoint& endpoint, const SharedCell& cell,
                                 std::uint64_t progress) {
  const CellReached reached(cell, progress);
  const Deadline deadline = Deadline::after(kTestTimeout);
  while (!reached.ready()) {
    if (deadline.expired() || !endpoint.failure().ok()) {
      return ::testing::AssertionFailure()
             << "waiting for " << progress << ", at " << cell.progress.load();
    }
    endpoint.poll(deadline, &reached);
  }
  return ::testing::AssertionSuccess();
}

TEST(SharedGroup, OfThreadsTakesTurnsThroughCells) {
  static constexpr int kWorld = 3;
  static constexpr std::uint64_t kOperations = 500;
  LoopbackNetwork network(kWorld, nullptr, true);
  Fabric fabric;
  for (int rank = 0; rank < kWorld; ++rank) fabric.endpoints.push_back(network.endpoint(rank));
  fabric.run([](int rank, Endpoint& endpoint) {
    SharedGroup* const group = endpoint.shared_group();
    ASSERT_NE(group, nullptr);
    EXPECT_EQ(group->index(), rank);
    EXPECT_EQ(group->size(), kWorld);
    EXPECT_EQ(group->rank(2), 2);
    for (std::uint64_t operation = 1; operation <= kOperations; ++operation) {
      SharedCell& own = group->cell(Channel::kShort, operation, rank);
      const std::uint64_t value = operation * 10 + static_cast<std::uint64_t>(rank);
      std::memcpy(group->slot(Channel::kShort, operation, rank), &value, sizeof value);
      const std::uint64_t progress = operation << SharedGroup::kStageBits;
      group->announce(own, progress);
      for (int member = 0; member < kWorld; ++member) {
        const SharedCell& cell = group->cell(Channel::kShort, operation, member);
        ASSERT_TRUE(await(endpoint, cell, progress));
        std::uint64_t told = 0;
        std::memcpy(&told, group->slot(Channel::kShort, operation, member), sizeof told);
        ASSERT_EQ(told, operation * 10 + static_cast<std::uint64_t>(member));
      }
    }
  });
}

TEST(SharedGroup, WakesAMemberThatSleeps) {
  LoopbackNetwork network(2, nullptr, true);
  Fabric fabric;
  for (int rank = 0; rank < 2; ++rank) fabric.endpoints.push_back(network.endpoint(rank));
  fabric.run([](int rank, Endpoint& endpoint) {
    SharedGroup& group = *endpoint.shared_group();
    SharedCell& own = group.cell(Channel::kLong, 0, rank);
    const SharedCell& other = group.cell(Channel::kLong, 0, 1 - rank);
    for (std::uint64_t turn = 1; turn <= 200; ++turn) {
      if (rank == 0) group.announce(own, turn);
      ASSERT_TRUE(await(endpoint, other, turn));
      if (rank == 1) group.announce(own, turn);
    }
  });
}

TEST(SharedGroup, KnowsWhatLiesInItsHeap) {
  LoopbackNetwork network(2, nullptr, true);
  const auto zero = network.endpoint(0);
  const auto one = network.endpoint(1);
  SharedGroup& group = *one->shared_group();
  const auto own = group.heap(1);
  EXPECT_EQ(group.heap_position(own.data() + 8, 100), 8U);
  EXPECT_EQ(group.heap_position(own.data(), own.size()), 0U);
  EXPECT_FALSE(group.heap_position(own.data() + 8, own.size()).has_value());
  EXPECT_FALSE(group.heap_position(group.heap(0).data(), 1).has_value());
  int elsewhere = 0;
  EXPECT_FALSE(group.heap_position(&elsewhere, 4).has_value());
  own[5] = std::byte{7};
  EXPECT_EQ(zero->shared_group()->heap(1)[5], std::byte{7});
}

TEST(SharedGroup, IsThereOnlyWhereItWasAskedFor) {
  LoopbackNetwork network(2);
  EXPECT_EQ(network.endpoint(0)->shared_group(), nullptr);
}

}  // namespace
}  // namespace dlaunch
