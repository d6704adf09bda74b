// The plans of collectives in shared memory, as all members of a group carry them out together.
#include "runtime/collective/shared_plan.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collective/shared_simulation.h"

namespace dlaunch::testing {
namespace {

constexpr int kWorlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16};
// Of the second, a round of a vector that is read in place has four elements only.
constexpr std::size_t kElementBytes[] = {4, std::size_t{64} << 10, 24};

// Too short for most, long enough for pieces that are cut at cache lines, and for everything.
constexpr std::size_t kSlotElements[] = {13, 170, 1'000};

std::uint64_t fresh_seed() {
  return std::random_device{}();
}

bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kScatter ||
         kind == CollectiveKind::kGather || kind == CollectiveKind::kReduce;
}

bool has_given_parts(CollectiveKind kind) {
  return kind == CollectiveKind::kScatter || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
}

Partition parts_of(CollectiveKind kind, int members, std::size_t count, std::mt19937_64& random) {
  const auto p = static_cast<std::size_t>(members);
  if (kind == CollectiveKind::kBarrier) return Partition::equal(members, 0);
  if (kind == CollectiveKind::kAllToAll) return Partition::equal(members, count / p);
  if (!has_given_parts(kind) || random() % 3 == 0) return Partition::even(members, count);
  std::vector<std::size_t> counts(p);
  for (std::size_t& each : counts) each = random() % 3 == 0 ? 0 : random() % (2 * count / p + 2);
  return Partition::of(counts);
}

// True if what a member exposes in one operation fits a slot, so that it may choose.
bool fits_slot(const SharedShape& shape) {
  const bool part =
      shape.kind == CollectiveKind::kGather || shape.kind == CollectiveKind::kAllGather;
  const std::size_t most = part ? shape.parts.longest() : shape.parts.total();
  const bool read_in_place = shape.readable && (shape.kind == CollectiveKind::kScatter ||
                                                shape.kind == CollectiveKind::kReduceScatter ||
                                                shape.kind == CollectiveKind::kAllToAll);
  return most * shape.element <= shape.slot || !read_in_place;
}

SimulatedCall call_of(const SharedShape& shape, std::mt19937_64& random) {
  SimulatedCall call{.shape = shape};
  const bool by_slot = fits_slot(shape);
  const bool one_shot = shape.algorithm == Algorithm::kOneShot;
  for (int member = 0; member < shape.members; ++member) {
    call.in_place.push_back(!one_shot && (!by_slot || random() % 2 == 0));
  }
  call.aliased = shape.kind != CollectiveKind::kAllToAll && random() % 2 == 0;
  return call;
}

std::string describe(const SharedShape& shape) {
  std::ostringstream text;
  text << to_string(shape.kind) << " " << to_string(shape.algorithm) << " of " << shape.members
       << ", root " << shape.root << ", element " << shape.element << ", slot " << shape.slot
       << ", readable " << shape.readable << ", parts";
  for (int i = 0; i < shape.parts.parts(); ++i) text << " " << shape.parts.count(i);
  return text.str();
}

SharedShape shape_of(CollectiveKind kind, int members, std::size_t count, std::mt19937_64& random) {
  SharedShape shape{.kind = kind, .algorithm = Algorithm::kDirect, .members = members};
  const bool sums = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce;
  if (sums && random() % 3 == 0) shape.algorithm = Algorithm::kOneShot;
  if (has_root(kind)) shape.root = static_cast<int>(random() % static_cast<unsigned>(members));
  shape.element = kElementBytes[random() % std::size(kElementBytes)];
  shape.slot =
      shape.element * kSlotElements[random() % std::size(kSlotElements)] + random() % shape.element;
  shape.readable = random() % 2 == 0;
  shape.parts = parts_of(kind, members, count, random);
  return shape;
}

class SharedPlans : public ::testing::TestWithParam<CollectiveKind> {};

TEST_P(SharedPlans, MoveAndReduceRightlyWhateverTheOrderOfTurns) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const int members : kWorlds) {
    const auto p = static_cast<std::size_t>(members);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, p - 1, std::size_t{13},
                                    std::size_t{127}, std::size_t{401}}) {
      for (int variant = 0; variant < 6; ++variant) {
        const SharedShape shape = shape_of(GetParam(), members, count, random);
        if (!has_shared_plan(shape)) continue;
        // Several, because slots and cells are used again, and calls of members overlap.
        const std::vector<SimulatedCall> calls{call_of(shape, random), call_of(shape, random),
                                               call_of(shape, random)};
        ASSERT_EQ(simulate(calls, members, random), "") << describe(shape);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SharedPlans, ::testing::ValuesIn(kAllCollectiveKinds),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(SharedPlanSequences, OfDifferentCollectivesShareSlotsAndCells) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 150; ++round) {
    const int members = kWorlds[random() % std::size(kWorlds)];
    std::vector<SimulatedCall> calls;
    std::string told;
    while (calls.size() < 12) {
      const CollectiveKind kind = kAllCollectiveKinds[random() % std::size(kAllCollectiveKinds)];
      const SharedShape shape = shape_of(kind, members, random() % 60, random);
      if (!has_shared_plan(shape)) continue;
      calls.push_back(call_of(shape, random));
      told += describe(shape) + "\n";
    }
    ASSERT_EQ(simulate(calls, members, random), "") << told;
  }
}

TEST(SharedPlanSequences, HaveTheSameOperationsOnEveryMember) {
  std::mt19937_64 random(fresh_seed());
  for (const CollectiveKind kind : kAllCollectiveKinds) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{12}, std::size_t{4'000}}) {
      SharedShape shape = shape_of(kind, 5, count, random);
      if (!has_shared_plan(shape)) continue;
      const std::uint32_t operations = shared_plan(shape).operations;
      for (shape.member = 1; shape.member < 5; ++shape.member) {
        EXPECT_EQ(shared_plan(shape).operations, operations) << describe(shape);
      }
    }
  }
}

TEST(SharedPlan, IsMissingForWhatNeitherFitsASlotNorCanBeCutOrRead) {
  for (const CollectiveKind kind : kAllCollectiveKinds) {
    // In pieces that are cut at cache lines, of which two of every part must fit.
    SharedShape shape{.kind = kind, .members = 3, .root = 0, .element = 4, .slot = 6 * 64};
    shape.parts = Partition::equal(3, 170);
    EXPECT_TRUE(has_shared_plan(shape)) << to_string(kind);
    shape.slot = 5 * 64;
    const bool all_parts = kind == CollectiveKind::kScatter ||
                           kind == CollectiveKind::kReduceScatter ||
                           kind == CollectiveKind::kAllToAll;
    EXPECT_EQ(has_shared_plan(shape), !all_parts) << to_string(kind);
    shape.readable = true;
    EXPECT_TRUE(has_shared_plan(shape)) << to_string(kind);
    shape.readable = false;
    shape.parts = Partition::equal(3, 16);
    EXPECT_TRUE(has_shared_plan(shape)) << to_string(kind);
  }
  const SharedShape one_shot{.kind = CollectiveKind::kAllReduce,
                             .algorithm = Algorithm::kOneShot,
                             .members = 3,
                             .element = 4,
                             .slot = 64,
                             .readable = true,
                             .parts = Partition::even(3, 17)};
  EXPECT_FALSE(has_shared_plan(one_shot));
}

// One copy before and one behind the member's own part, which nobody else reads.
TEST(SharedPlan, CopiesIntoTheSlotInOneGoWhatLiesTogether) {
  for (const CollectiveKind kind : {CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                                    CollectiveKind::kScatter, CollectiveKind::kAllReduce}) {
    SharedShape shape{.kind = kind,
                      .members = 7,
                      .root = 2,
                      .element = 4,
                      .slot = 4096,
                      .parts = Partition::equal(7, 70)};
    for (; shape.member < 7; ++shape.member) {
      const SharedPlan plan = shared_plan(shape);
      const auto copies =
          std::ranges::count(plan.actions, SharedAction::Kind::kExpose, &SharedAction::kind);
      const bool exposes = kind != CollectiveKind::kScatter || shape.member == shape.root;
      const bool inside = shape.member > 0 && shape.member < 6;
      EXPECT_EQ(copies, !exposes ? 0 : inside ? 2 : 1) << to_string(kind) << shape.member;
    }
  }
}

// What goes through the slots in pieces is cut at cache lines, like the slices of every piece.
TEST(SharedPlan, BeginsEveryPieceAtACacheLine) {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduce, CollectiveKind::kBroadcast,
        CollectiveKind::kGather, CollectiveKind::kAllGather}) {
    SharedShape shape{.kind = kind, .members = 3, .root = 1, .element = 4, .slot = 699'050};
    shape.parts = Partition::equal(3, 524'286);
    for (; shape.member < 3; ++shape.member) {
      for (const SharedAction& action : shared_plan(shape).actions) {
        EXPECT_EQ(action.from % 16, 0) << to_string(kind) << " " << shape.member;
      }
    }
  }
}

// All members have work in every operation, however unequal the parts are.
TEST(SharedPlan, ReducesAPieceOfEveryPartInEveryOperation) {
  const std::vector<std::size_t> counts{90'000, 0, 500, 1'000};
  SharedShape shape{.kind = CollectiveKind::kReduceScatter,
                    .members = 4,
                    .element = 4,
                    .slot = 16'384,
                    .parts = Partition::of(counts)};
  const std::size_t least = 4 * shape.parts.total() / shape.slot;
  for (; shape.member < 4; ++shape.member) {
    const SharedPlan plan = shared_plan(shape);
    EXPECT_GT(plan.operations, least);
    EXPECT_LE(plan.operations, least + 2);
    std::size_t reduced = 0;
    std::size_t longest = 0;
    for (const SharedAction& action : plan.actions) {
      EXPECT_LE((action.slot + action.count) * shape.element, shape.slot);
      if (action.kind != SharedAction::Kind::kReduce) continue;
      reduced += action.count;
      longest = std::max(longest, action.count);
    }
    const std::size_t own = counts[static_cast<std::size_t>(shape.member)];
    EXPECT_EQ(reduced, own);
    EXPECT_LE(longest, own / plan.operations + 16);
  }
}

TEST(AlignedPartition, CoversEverythingEvenlyAndCutsAtCacheLines) {
  for (const int parts : kWorlds) {
    for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 1'009U, 65'536U}) {
      for (const std::size_t element : {1U, 2U, 4U, 8U, 24U, 64U, 100U}) {
        const Partition cut = aligned_partition(parts, count, element);
        ASSERT_EQ(cut.parts(), parts);
        ASSERT_EQ(cut.offset(0), 0U);
        ASSERT_EQ(cut.total(), count);
        const std::size_t unit = 64 % element == 0 ? 64 / element : 1;
        const std::size_t even = (count + unit - 1) / unit / static_cast<std::size_t>(parts);
        for (int part = 0; part < parts; ++part) {
          ASSERT_LE(cut.count(part), (even + 1) * unit);
          ASSERT_TRUE(cut.offset(part) == count || cut.offset(part) % unit == 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace dlaunch::testing
