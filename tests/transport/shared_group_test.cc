// The shared memory of a group as collectives use it: cells, slots, heaps, and waiting for them.
#include "transport/shm/shared_group.h"

#include <cstring>
#include <vector>

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

// Members' views of a group, without ranks, and whose doorbells were rung.
class RungMembers final : public Doorbells {
 public:
  explicit RungMembers(int members) : memory_(SharedGroup::memory_bytes(members) / sizeof(Page)) {
    for (int index = 0; index < members; ++index) {
      groups_.emplace_back(SharedGroup::Options{
          .index = index,
          .members = std::vector<SharedGroup::Member>(static_cast<std::size_t>(members)),
          .memory = memory_.front().bytes,
          .doorbells = this});
    }
  }
  void ring(int member) override { rung_.push_back(member); }

  SharedGroup& of(int member) { return groups_[static_cast<std::size_t>(member)]; }
  /// Who is rung when a member announces something.
  std::vector<int> rung_by(int member) {
    rung_.clear();
    SharedGroup& group = of(member);
    group.announce(group.cell(Channel::kShort, 1, member), ++progress_);
    return rung_;
  }

 private:
  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  std::vector<Page> memory_;
  std::vector<SharedGroup> groups_;
  std::vector<int> rung_;
  std::uint64_t progress_ = 0;
};

TEST(SharedGroup, WakesOnlyThoseThatSleepUntilThisMemberAnnounces) {
  using Members = std::vector<int>;
  RungMembers rung(70);  // more than the bits of a word
  rung.of(0).fall_asleep(69);
  rung.of(3).fall_asleep(Readiness::kAnyMember);
  rung.of(66).fall_asleep(1);
  rung.of(68).fall_asleep(Readiness::kNoMember);
  EXPECT_EQ(rung.rung_by(1), (Members{3, 66}));
  EXPECT_EQ(rung.rung_by(1), Members{}) << "they are told once";
  EXPECT_EQ(rung.rung_by(69), Members{0});
  rung.of(0).fall_asleep(1);
  rung.of(3).fall_asleep(69);
  rung.of(3).wake_up();
  EXPECT_EQ(rung.rung_by(69), Members{}) << "one sleeps until something else, one is awake";
  rung.of(68).wake(0);  // as who has written a message does
  rung.of(0).wake(68);
  EXPECT_EQ(rung.rung_by(1), Members{}) << "all have been woken";
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
