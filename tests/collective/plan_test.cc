// Every algorithm's plans, run against each other symbolically for worlds 1..17.
#include "runtime/collective/plan.h"

#include <set>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "runtime/collective/butterfly.h"
#include "runtime/collective/dissemination.h"
#include "runtime/collective/linear.h"
#include "runtime/collective/ring.h"
#include "runtime/collective/tree.h"
#include "tests/collective/plan_simulation.h"

namespace dlaunch::testing {
namespace {

std::size_t index_of(int rank) {
  return static_cast<std::size_t>(rank);
}

// Parts that are unequal, some empty.
Partition unequal(int world) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < world; ++rank) counts.push_back(index_of(rank * 5 + 3) % 4);
  return Partition::of(counts);
}

class EveryWorld : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  std::vector<std::size_t> counts() const {
    const std::size_t p = index_of(world());
    return {0, 1, p - 1, p, p + 1, 13, 2 * p + 1};
  }
  std::vector<Partition> partitions() const {
    return {unequal(world()), Partition::equal(world(), 0), Partition::equal(world(), 1),
            Partition::equal(world(), 3)};
  }
  void expect_reduced(const SimulationResult& result, std::size_t count) const {
    ASSERT_EQ(result.error, "") << "world " << world() << ", count " << count;
    for (const SymbolVector& output : result.outputs) {
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(output[i], reduced_symbol(world(), i))
            << "world " << world() << ", count " << count << ", element " << i;
      }
    }
  }
};

using RingPlan = EveryWorld;
using ButterflyPlan = EveryWorld;
using TreePlan = EveryWorld;
using LinearPlan = EveryWorld;
using BarrierPlan = EveryWorld;

TEST_P(RingPlan, ReducesEveryElementOnce) {
  for (const std::size_t count : counts()) {
    expect_reduced(simulate(world(), count, count,
                            [&](int rank) { return ring_all_reduce(rank, world(), count); }),
                   count);
  }
}

TEST_P(RingPlan, SendsTheLeastPossibleNumberOfElements) {
  const std::size_t p = index_of(world());
  const std::size_t count = 12 * p;
  std::size_t sent = 0;
  for (const PlanStep& step : ring_all_reduce(0, world(), count).steps) {
    for (const PlannedSend& send : step.sends) sent += send.from.count;
  }
  EXPECT_EQ(sent, 2 * (p - 1) * count / p);
}

TEST_P(RingPlan, ReduceScatterLeavesEachRankItsPart) {
  for (const Partition& parts : partitions()) {
    const auto result = simulate(
        world(), [&](int) { return parts.total(); }, [&](int rank) { return parts.count(rank); },
        [&](int rank) { return ring_reduce_scatter(rank, parts); });
    ASSERT_EQ(result.error, "");
    for (int rank = 0; rank < world(); ++rank) {
      for (std::size_t i = 0; i < parts.count(rank); ++i) {
        ASSERT_EQ(result.outputs[index_of(rank)][i],
                  reduced_symbol(world(), parts.offset(rank) + i))
            << "world " << world() << ", rank " << rank;
      }
    }
  }
}

TEST_P(RingPlan, AllGatherBringsEveryPartEverywhere) {
  for (const Partition& parts : partitions()) {
    const auto result = simulate(
        world(), [&](int rank) { return parts.count(rank); }, [&](int) { return parts.total(); },
        [&](int rank) { return ring_all_gather(rank, parts); });
    ASSERT_EQ(result.error, "");
    for (const SymbolVector& output : result.outputs) {
      for (int part = 0; part < world(); ++part) {
        for (std::size_t i = 0; i < parts.count(part); ++i) {
          ASSERT_EQ(output[parts.offset(part) + i], input_symbol(part, i));
        }
      }
    }
  }
}

TEST_P(ButterflyPlan, ReducesEveryElementOnce) {
  for (const std::size_t count : counts()) {
    expect_reduced(simulate(world(), count, count,
                            [&](int rank) { return butterfly_all_reduce(rank, world(), count); }),
                   count);
  }
}

TEST_P(ButterflyPlan, TakesLogarithmicallyManySteps) {
  std::size_t limit = 3;  // fold in, divide, fold out
  for (int reach = 2; reach <= world(); reach *= 2) ++limit;
  for (int rank = 0; rank < world(); ++rank) {
    EXPECT_LE(butterfly_all_reduce(rank, world(), 5).steps.size(), limit);
  }
}

TEST_P(TreePlan, BroadcastReachesEveryRankFromEveryRoot) {
  for (const std::size_t count : {0U, 1U, 5U}) {
    for (int root = 0; root < world(); ++root) {
      // The data starts in the root's output, which the simulation cannot fill: one copy before.
      const auto result = simulate(world(), count, count, [&](int rank) {
        Plan plan = binomial_broadcast(rank, world(), count, root);
        if (rank == root) {
          const PlanStep fill{
              .copies = {{{Region::kInput, 0, count}, {Region::kOutput, 0, count}}}};
          plan.steps.insert(plan.steps.begin(), fill);
        }
        return plan;
      });
      ASSERT_EQ(result.error, "");
      for (const SymbolVector& output : result.outputs) {
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(output[i], input_symbol(root, i));
      }
    }
  }
}

TEST_P(TreePlan, ReduceBringsEveryElementToTheRootOnce) {
  for (const std::size_t count : {0U, 1U, 5U}) {
    for (int root = 0; root < world(); ++root) {
      const auto result = simulate(
          world(), [=](int) { return count; }, [=](int rank) { return rank == root ? count : 0; },
          [&](int rank) { return binomial_reduce(rank, world(), count, root); });
      ASSERT_EQ(result.error, "");
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(result.outputs[index_of(root)][i], reduced_symbol(world(), i));
      }
    }
  }
}

TEST_P(LinearPlan, ScatterHandsEachRankItsPart) {
  for (const Partition& parts : partitions()) {
    for (int root = 0; root < world(); ++root) {
      const auto result = simulate(
          world(), [&](int rank) { return rank == root ? parts.total() : 0; },
          [&](int rank) { return parts.count(rank); },
          [&](int rank) { return linear_scatter(rank, parts, root); });
      ASSERT_EQ(result.error, "");
      for (int rank = 0; rank < world(); ++rank) {
        for (std::size_t i = 0; i < parts.count(rank); ++i) {
          ASSERT_EQ(result.outputs[index_of(rank)][i], input_symbol(root, parts.offset(rank) + i));
        }
      }
    }
  }
}

TEST_P(LinearPlan, GatherCollectsEveryPartAtTheRoot) {
  for (const Partition& parts : partitions()) {
    for (int root = 0; root < world(); ++root) {
      const auto result = simulate(
          world(), [&](int rank) { return parts.count(rank); },
          [&](int rank) { return rank == root ? parts.total() : 0; },
          [&](int rank) { return linear_gather(rank, parts, root); });
      ASSERT_EQ(result.error, "");
      for (int part = 0; part < world(); ++part) {
        for (std::size_t i = 0; i < parts.count(part); ++i) {
          ASSERT_EQ(result.outputs[index_of(root)][parts.offset(part) + i], input_symbol(part, i));
        }
      }
    }
  }
}

// Knowledge spreads with the messages, round by round.
TEST_P(BarrierPlan, EndsOnlyAfterEveryRankHasBeenHeard) {
  const auto p = index_of(world());
  std::vector<Plan> plans;
  for (int rank = 0; rank < world(); ++rank) plans.push_back(dissemination_barrier(rank, world()));
  std::vector<std::set<std::size_t>> heard(p);
  for (std::size_t rank = 0; rank < p; ++rank) heard[rank].insert(rank);
  for (std::size_t round = 0; round < plans[0].steps.size(); ++round) {
    const auto before = heard;
    for (std::size_t rank = 0; rank < p; ++rank) {
      for (const PlannedRecv& recv : plans[rank].steps[round].recvs) {
        heard[rank].insert(before[index_of(recv.peer)].begin(), before[index_of(recv.peer)].end());
      }
    }
  }
  for (std::size_t rank = 0; rank < p; ++rank) EXPECT_EQ(heard[rank].size(), p);
  EXPECT_EQ(simulate(world(), 0, 0, [&](int rank) { return plans[index_of(rank)]; }).error, "");
}

INSTANTIATE_TEST_SUITE_P(Worlds, RingPlan, ::testing::Range(1, 18));
INSTANTIATE_TEST_SUITE_P(Worlds, ButterflyPlan, ::testing::Range(1, 18));
INSTANTIATE_TEST_SUITE_P(Worlds, TreePlan, ::testing::Range(1, 18));
INSTANTIATE_TEST_SUITE_P(Worlds, LinearPlan, ::testing::Range(1, 18));
INSTANTIATE_TEST_SUITE_P(Worlds, BarrierPlan, ::testing::Range(1, 18));

TEST(Partition, CutsEvenlyWithTheLongerPartsFirst) {
  const Partition parts = Partition::even(4, 10);
  EXPECT_EQ(parts.count(0), 3U);
  EXPECT_EQ(parts.count(1), 3U);
  EXPECT_EQ(parts.count(2), 2U);
  EXPECT_EQ(parts.count(3), 2U);
  EXPECT_EQ(parts.offset(3), 8U);
  EXPECT_EQ(parts.total(), 10U);
}

}  // namespace
}  // namespace dlaunch::testing
