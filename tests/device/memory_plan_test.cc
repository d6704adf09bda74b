// Plans of collectives over shared device memory, carried out symbolically by all ranks at once, in
// random order, as far as flags let them.
#include <array>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/device/memory_plan.h"
#include "runtime/device/shared_flags.h"

namespace dlaunch {
namespace {

using Value = std::vector<int>;  // a sum, as the ranks whose element it holds, in their order
using Vector = std::vector<Value>;
using Kind = MemoryStep::Kind;

/// What a rank does: plans one after the other, each step with the slot of its round.
struct PlacedStep {
  MemoryStep step;
  std::size_t slot = 0;
};
using Program = std::vector<PlacedStep>;

// Programs on the same slots and flags.
class Ranks {
 public:
  Ranks(int world, std::size_t slot, std::uint64_t seed) : world_(world), random_(seed) {
    slots_.fill(std::vector<Vector>(static_cast<std::size_t>(world), Vector(slot)));
    flags_.resize(FlagLayout{world}.words(), 0);
    for (std::size_t each = 0; each < kMemorySlots; ++each) {
      for (int from = 0; from < world; ++from) {
        for (int to = 0; to < world; ++to) flag(each, MemoryPhase::kRead, from, to) = 1;
      }
    }
  }

  void run(const std::vector<Program>& programs, const std::vector<Vector>& inputs,
           std::vector<Vector>& outputs) {
    std::vector<std::size_t> at(programs.size(), 0);
    std::size_t left = 0;
    for (const auto& program : programs) left += program.size();
    for (int tries = 0; left > 0; ++tries) {
      ASSERT_LT(tries, 1'000'000) << "the ranks wait for each other";
      const auto rank = static_cast<std::size_t>(random_() % programs.size());
      if (at[rank] == programs[rank].size()) continue;
      const auto& [next, slot] = programs[rank][at[rank]];
      if (!step(static_cast<int>(rank), next, slot, inputs[rank], outputs[rank])) continue;
      ++at[rank];
      --left;
      tries = 0;
    }
  }

  std::uint32_t& flag(std::size_t slot, MemoryPhase phase, int from, int to) {
    const std::size_t table = FlagLayout::table(DeviceLane::kAsync, slot, phase);
    return flags_[FlagLayout{world_}.flag(table, from, to)];
  }

 private:
  // False if it has to wait.
  bool step(int rank, const MemoryStep& step, std::size_t slot, const Vector& input,
            Vector& output) {
    std::vector<Vector>& all = slots_.at(slot);
    Vector& own = all[static_cast<std::size_t>(rank)];
    switch (step.kind) {
      case Kind::kAcquire:
        return take(slot, MemoryPhase::kRead, rank);
      case Kind::kMeet:
        if (!told_[{rank, step.phase}]) tell(slot, step.phase, rank);
        told_[{rank, step.phase}] = true;
        if (!take(slot, step.phase, rank)) return false;
        told_[{rank, step.phase}] = false;
        return true;
      case Kind::kRelease:
        tell(slot, MemoryPhase::kRead, rank);
        return true;
      case Kind::kLoad:
        for (std::size_t i = 0; i < step.count; ++i) own.at(step.place + i) = input.at(step.at + i);
        return true;
      case Kind::kCopy:
        for (std::size_t i = 0; i < step.count; ++i) {
          output.at(step.at + i) = all[static_cast<std::size_t>(step.member)].at(step.place + i);
        }
        return true;
      case Kind::kMove:
        for (std::size_t i = 0; i < step.count; ++i) output.at(step.at + i) = input.at(step.at + i);
        return true;
      case Kind::kReduceIntoSlot:
      case Kind::kReduceIntoOutput:
        break;
    }
    for (std::size_t i = 0; i < step.count; ++i) {
      Value sum;
      for (const Vector& of_rank : all) {
        const Value& operand = of_rank.at(step.place + i);
        sum.insert(sum.end(), operand.begin(), operand.end());
      }
      (step.kind == Kind::kReduceIntoSlot ? own.at(step.place + i) : output.at(step.at + i)) = sum;
    }
    return true;
  }

  void tell(std::size_t slot, MemoryPhase phase, int rank) {
    for (int peer = 0; peer < world_; ++peer) {
      if (peer == rank) continue;
      EXPECT_EQ(flag(slot, phase, rank, peer), 0U) << "set before it was cleared";
      flag(slot, phase, rank, peer) = 1;
    }
  }
  bool take(std::size_t slot, MemoryPhase phase, int rank) {
    for (int peer = 0; peer < world_; ++peer) {
      if (peer != rank && flag(slot, phase, peer, rank) == 0) return false;
    }
    for (int peer = 0; peer < world_; ++peer) {
      if (peer != rank) flag(slot, phase, peer, rank) = 0;
    }
    return true;
  }

  const int world_;
  std::array<std::vector<Vector>, kMemorySlots> slots_;  // by rank
  std::vector<std::uint32_t> flags_;
  std::map<std::pair<int, MemoryPhase>, bool> told_;
  std::mt19937_64 random_;
};

Value mark(int rank, std::size_t index) {
  return {rank, static_cast<int>(index)};
}

Vector marks(int rank, std::size_t count) {
  Vector vector;
  for (std::size_t i = 0; i < count; ++i) vector.push_back(mark(rank, i));
  return vector;
}

Value sum_of_all(int world, std::size_t index) {
  Value sum;
  for (int rank = 0; rank < world; ++rank) {
    sum.push_back(rank);
    sum.push_back(static_cast<int>(index));
  }
  return sum;
}

struct Case {
  int world = 1;
  std::size_t slot = 0;
};

class MemoryPlans : public ::testing::TestWithParam<Case> {
 protected:
  int world() const { return GetParam().world; }
  std::size_t p() const { return static_cast<std::size_t>(world()); }

  /// The plans of all ranks, with slots in turn.
  std::vector<Program> plan(MemoryShape shape, std::size_t first_slot) const {
    std::vector<Program> programs;
    shape.world = world();
    shape.slot = GetParam().slot;
    for (shape.rank = 0; shape.rank < world(); ++shape.rank) {
      Program& program = programs.emplace_back();
      std::size_t next = first_slot;
      std::size_t slot = 0;
      for (const MemoryStep& step : memory_plan(shape)) {
        if (step.kind == Kind::kAcquire) slot = next++ % kMemorySlots;
        program.push_back({step, slot});
      }
    }
    return programs;
  }

  // One operation, on what `ranks_` was left with.
  std::vector<Vector> run(const MemoryShape& shape, const std::vector<Vector>& inputs,
                          std::size_t output_count) {
    std::vector<Vector> outputs(p(), Vector(output_count, Value{-1}));
    ranks_.run(plan(shape, operations_++ % kMemorySlots), inputs, outputs);
    return outputs;
  }

  std::vector<Vector> inputs(std::size_t count) const {
    std::vector<Vector> vectors;
    for (int rank = 0; rank < world(); ++rank) vectors.push_back(marks(rank, count));
    return vectors;
  }

  const std::uint64_t seed_ = std::random_device{}();
  Ranks ranks_{GetParam().world, GetParam().slot, seed_};
  std::size_t operations_ = 0;
};

TEST_P(MemoryPlans, OfAllReducesAddEveryElementInTheOrderOfRanks) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, p(), std::size_t{61}, std::size_t{200}}) {
    for (const std::size_t one_shot : {0U, 1'000U}) {
      const auto outputs = run({.count = count, .one_shot = one_shot}, inputs(count), count);
      for (const Vector& output : outputs) {
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(output[i], sum_of_all(world(), i)) << "seed " << seed_;
        }
      }
    }
  }
}

TEST_P(MemoryPlans, OfRootedOnesReachTheRootOrComeFromIt) {
  const int root = world() - 1;
  const auto last = static_cast<std::size_t>(root);
  const auto sums =
      run({.kind = CollectiveKind::kReduce, .root = root, .count = 77}, inputs(77), 77);
  for (std::size_t i = 0; i < 77; ++i) ASSERT_EQ(sums[last][i], sum_of_all(world(), i));
  const auto copies =
      run({.kind = CollectiveKind::kBroadcast, .root = root, .count = 77}, inputs(77), 77);
  for (std::size_t rank = 0; rank < last; ++rank) ASSERT_EQ(copies[rank], marks(root, 77));
}

TEST_P(MemoryPlans, WithUnequalPartsPutEveryPartInItsPlace) {
  std::vector<std::size_t> counts(p());
  for (std::size_t i = 0; i < p(); ++i) counts[i] = i % 3 == 1 ? 0 : 7 * i + 5;
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const auto offset = [&](std::size_t rank) {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::size_t{0});
  };
  const auto parts = run({.kind = CollectiveKind::kReduceScatter, .counts = counts}, inputs(total),
                         *std::ranges::max_element(counts));
  const auto all =
      run({.kind = CollectiveKind::kAllGather, .counts = counts}, inputs(total), total);
  const auto pieces =
      run({.kind = CollectiveKind::kScatter, .root = 0, .counts = counts}, inputs(total), total);
  const auto gathered =
      run({.kind = CollectiveKind::kGather, .root = 0, .counts = counts}, inputs(total), total);
  for (std::size_t rank = 0; rank < p(); ++rank) {
    for (std::size_t i = 0; i < counts[rank]; ++i) {
      ASSERT_EQ(parts[rank][i], sum_of_all(world(), offset(rank) + i)) << "seed " << seed_;
      ASSERT_EQ(pieces[rank][i], mark(0, offset(rank) + i));
      ASSERT_EQ(gathered[0][offset(rank) + i], mark(static_cast<int>(rank), i));
      for (const Vector& whole : all) {
        ASSERT_EQ(whole[offset(rank) + i], mark(static_cast<int>(rank), i));
      }
    }
  }
}

TEST_P(MemoryPlans, WithAllInOnePartStayWithinTheSlotThatItJustFillsOrJustDoesNotFitInto) {
  for (const std::size_t total : {GetParam().slot, GetParam().slot + 1}) {
    std::vector<std::size_t> counts(p());
    counts.front() = total;
    const auto parts =
        run({.kind = CollectiveKind::kReduceScatter, .counts = counts}, inputs(total), total);
    for (std::size_t i = 0; i < total; ++i) ASSERT_EQ(parts[0][i], sum_of_all(world(), i));
  }
}

TEST_P(MemoryPlans, OfAllToAllsExchangeEveryPart) {
  for (const std::size_t each : {1U, 40U}) {
    const std::vector<std::size_t> counts(p(), each);
    const auto outputs =
        run({.kind = CollectiveKind::kAllToAll, .counts = counts}, inputs(each * p()), each * p());
    for (std::size_t to = 0; to < p(); ++to) {
      for (std::size_t from = 0; from < p(); ++from) {
        for (std::size_t i = 0; i < each; ++i) {
          ASSERT_EQ(outputs[to][from * each + i], mark(static_cast<int>(from), to * each + i));
        }
      }
    }
  }
}

// As recordings do that are repeated in any order: the first slot of one may be the last one of the
// one before, or not. Ranks may be operations apart.
TEST_P(MemoryPlans, OneAfterTheOtherMayBeginWithAnySlot) {
  constexpr std::size_t kOperations = 40;
  constexpr std::size_t kCount = 50;
  std::mt19937_64 random(seed_);
  std::vector<Program> programs(p());
  for (std::size_t operation = 0; operation < kOperations; ++operation) {
    const MemoryShape shape{.count = kCount, .one_shot = random() % 2 == 0 ? kCount : 10};
    const std::vector<Program> added = plan(shape, random() % kMemorySlots);
    for (std::size_t rank = 0; rank < p(); ++rank) {
      for (PlacedStep step : added[rank]) {
        step.step.at += operation * kCount;
        programs[rank].push_back(step);
      }
    }
  }
  std::vector<Vector> outputs(p(), Vector(kOperations * kCount));
  ranks_.run(programs, inputs(kOperations * kCount), outputs);
  for (const Vector& output : outputs) {
    for (std::size_t i = 0; i < output.size(); ++i) {
      ASSERT_EQ(output[i], sum_of_all(world(), i)) << "seed " << seed_;
    }
  }
}

// A recorded operation can be repeated, and any other can follow.
TEST_P(MemoryPlans, LeaveTheFlagsAsTheyFoundThem) {
  (void)run({.count = 50, .one_shot = 10}, inputs(50), 50);
  for (std::size_t slot = 0; slot < kMemorySlots; ++slot) {
    for (int from = 0; from < world(); ++from) {
      for (int to = 0; to < world(); ++to) {
        EXPECT_EQ(ranks_.flag(slot, MemoryPhase::kReady, from, to), 0U);
        EXPECT_EQ(ranks_.flag(slot, MemoryPhase::kReduced, from, to), 0U);
        EXPECT_EQ(ranks_.flag(slot, MemoryPhase::kRead, from, to), 1U);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, MemoryPlans,
                         ::testing::Values(Case{1, 8}, Case{2, 16}, Case{2, 1000}, Case{3, 33},
                                           Case{5, 48}, Case{5, 1000}, Case{8, 9}),
                         [](const auto& test) {
                           return std::to_string(test.param.world) + "_" +
                                  std::to_string(test.param.slot);
                         });

TEST(Slices, CoverAVectorOnceAndBeginWhereWideLoadsMay) {
  for (const int world : {1, 2, 3, 7}) {
    for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 1'000U}) {
      std::size_t end = 0;
      for (int rank = 0; rank < world; ++rank) {
        const Slice slice = slice_of(count, rank, world);
        EXPECT_EQ(slice.begin, end);
        EXPECT_TRUE(slice.begin % kSliceUnit == 0 || slice.begin == count);
        end = slice.end;
      }
      EXPECT_EQ(end, count);
    }
  }
}

TEST(Flags, HaveWordsOfTheirOwn) {
  const FlagLayout layout{5};
  std::vector<int> uses(layout.words());
  for (const DeviceLane lane : kAllDeviceLanes) {
    for (int from = 0; from < 5; ++from) {
      ++uses.at(layout.stage(lane, from));
      uses.at(layout.closed(from)) = 1;
      for (std::size_t slot = 0; slot < kMemorySlots; ++slot) {
        for (const auto phase : {MemoryPhase::kReady, MemoryPhase::kReduced, MemoryPhase::kRead}) {
          const std::size_t table = FlagLayout::table(lane, slot, phase);
          EXPECT_LT(table, FlagLayout::kTables);
          for (int to = 0; to < 5; ++to) ++uses.at(layout.flag(table, from, to));
        }
      }
    }
  }
  EXPECT_EQ(*std::ranges::max_element(uses), 1);
}

}  // namespace
}  // namespace dlaunch
