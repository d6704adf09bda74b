// The plans of every algorithm, run against each other symbolically for worlds 1..17.
#include "runtime/collective/plan.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/collective/algorithms.h"
#include "tests/collective/plan_simulation.h"

namespace dlaunch::testing {
namespace {

std::size_t index_of(int rank) {
  return static_cast<std::size_t>(rank);
}

class EveryPlan : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  std::size_t p() const { return index_of(world()); }
  std::vector<std::size_t> counts() const { return {0, 1, p() - 1, p(), p() + 1, 13, 2 * p() + 1}; }
  // Counts of the parts: unequal ones, some of them empty, and equal ones.
  std::vector<std::vector<std::size_t>> partitions() const {
    std::vector<std::size_t> unequal;
    for (std::size_t rank = 0; rank < p(); ++rank) unequal.push_back((rank * 5 + 3) % 4);
    return {unequal, std::vector<std::size_t>(p(), 0), std::vector<std::size_t>(p(), 1),
            std::vector<std::size_t>(p(), 3)};
  }

  // Runs `check` for every algorithm and order of `kind`.
  template <typename Check>
  void for_every_algorithm(CollectiveKind kind, const Check& check) const {
    for (const Algorithm algorithm : algorithms_of(kind)) {
      for (const ReduceOrder order : {ReduceOrder::kAny, ReduceOrder::kRanks}) {
        SCOPED_TRACE(std::string(to_string(algorithm)) +
                     (order == ReduceOrder::kRanks ? " in rank order" : ""));
        check(PlanRequest{.kind = kind, .algorithm = algorithm, .order = order, .world = world()});
      }
    }
  }

  // All of `output` is the sum of the inputs' elements from `offset` on.
  void expect_reduced(const SymbolVector& output, std::size_t offset, ReduceOrder order) const {
    for (std::size_t i = 0; i < output.size(); ++i) {
      ASSERT_EQ(output[i], reduced_symbol(world(), offset + i)) << "element " << i;
      if (order == ReduceOrder::kRanks) {
        ASSERT_TRUE(output[i].in_rank_order()) << "element " << i;
      }
    }
  }
};

Plan plan_of(PlanRequest request, int rank) {
  request.rank = rank;
  return make_plan(request);
}

TEST_P(EveryPlan, AllReduceTakesEveryElementOnceOnEveryRank) {
  for_every_algorithm(CollectiveKind::kAllReduce, [&](PlanRequest request) {
    for (const std::size_t count : counts()) {
      request.count = count;
      const auto plan = [&](int rank) { return plan_of(request, rank); };
      for (const bool in_place : {false, true}) {
        const auto result = in_place ? simulate_in_place(world(), count, plan)
                                     : simulate(world(), count, count, plan);
        ASSERT_EQ(result.error, "") << "count " << count << ", in place " << in_place;
        for (const SymbolVector& output : result.outputs) {
          expect_reduced(output, 0, request.order);
        }
        // All ranks hold the same bits: additions are made in the same order.
        for (std::size_t i = 0; i < count; ++i) {
          for (const SymbolVector& output : result.outputs) {
            ASSERT_EQ(output[i].order, result.outputs[0][i].order) << "count " << count;
          }
        }
      }
    }
  });
}

TEST_P(EveryPlan, ReduceBringsEveryElementToTheRootOnce) {
  for_every_algorithm(CollectiveKind::kReduce, [&](PlanRequest request) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, 2 * p() + 1}) {
      for (int root = 0; root < world(); ++root) {
        request.count = count;
        request.root = root;
        const auto result = simulate(
            world(), [=](int) { return count; }, [=](int rank) { return rank == root ? count : 0; },
            [&](int rank) { return plan_of(request, rank); });
        ASSERT_EQ(result.error, "") << "count " << count << ", root " << root;
        expect_reduced(result.outputs[index_of(root)], 0, request.order);
      }
    }
  });
}

TEST_P(EveryPlan, ReduceScatterLeavesEachRankItsPart) {
  for_every_algorithm(CollectiveKind::kReduceScatter, [&](PlanRequest request) {
    for (const auto& each : partitions()) {
      const Partition parts = Partition::of(each);
      request.counts = each;
      request.count = parts.total();
      const auto result = simulate(
          world(), [&](int) { return parts.total(); }, [&](int rank) { return parts.count(rank); },
          [&](int rank) { return plan_of(request, rank); });
      ASSERT_EQ(result.error, "");
      for (int rank = 0; rank < world(); ++rank) {
        expect_reduced(result.outputs[index_of(rank)], parts.offset(rank), request.order);
      }
    }
  });
}

TEST_P(EveryPlan, AllGatherBringsEveryPartEverywhere) {
  for_every_algorithm(CollectiveKind::kAllGather, [&](PlanRequest request) {
    for (const auto& each : partitions()) {
      const Partition parts = Partition::of(each);
      request.counts = each;
      request.count = parts.total();
      const auto result = simulate(
          world(), [&](int rank) { return parts.count(rank); }, [&](int) { return parts.total(); },
          [&](int rank) { return plan_of(request, rank); });
      ASSERT_EQ(result.error, "");
      for (const SymbolVector& output : result.outputs) {
        for (int part = 0; part < world(); ++part) {
          for (std::size_t i = 0; i < parts.count(part); ++i) {
            ASSERT_EQ(output[parts.offset(part) + i], input_symbol(part, i));
          }
        }
      }
    }
  });
}

TEST_P(EveryPlan, BroadcastReachesEveryRankFromEveryRoot) {
  for_every_algorithm(CollectiveKind::kBroadcast, [&](PlanRequest request) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, 2 * p() + 1}) {
      for (int root = 0; root < world(); ++root) {
        request.count = count;
        request.root = root;
        const auto result =
            simulate_in_place(world(), count, [&](int rank) { return plan_of(request, rank); });
        ASSERT_EQ(result.error, "") << "count " << count << ", root " << root;
        for (const SymbolVector& output : result.outputs) {
          for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(output[i], input_symbol(root, i));
        }
      }
    }
  });
}

// What rank a has for rank b; zero for some.
std::size_t unequal_block(int a, int b) {
  return index_of(a * 7 + b * 3) % 5;
}

TEST_P(EveryPlan, AllToAllExchangesEqualBlocks) {
  for_every_algorithm(CollectiveKind::kAllToAll, [&](PlanRequest request) {
    for (const std::size_t each : {0U, 1U, 3U}) {
      request.count = each * p();
      const auto result = simulate(world(), each * p(), each * p(),
                                   [&](int rank) { return plan_of(request, rank); });
      ASSERT_EQ(result.error, "");
      for (int rank = 0; rank < world(); ++rank) {
        for (std::size_t i = 0; i < each * p(); ++i) {
          ASSERT_EQ(result.outputs[index_of(rank)][i],
                    input_symbol(static_cast<int>(i / each), index_of(rank) * each + i % each));
        }
      }
    }
  });
}

TEST_P(EveryPlan, AllToAllExchangesUnequalBlocks) {
  std::vector<std::vector<std::size_t>> sent(p());
  std::vector<std::vector<std::size_t>> received(p());
  for (int a = 0; a < world(); ++a) {
    for (int b = 0; b < world(); ++b) {
      sent[index_of(a)].push_back(unequal_block(a, b));
      received[index_of(a)].push_back(unequal_block(b, a));
    }
  }
  const auto total = [](const std::vector<std::size_t>& counts) {
    return Partition::of(counts).total();
  };
  for_every_algorithm(CollectiveKind::kAllToAll, [&](PlanRequest request) {
    const auto result = simulate(
        world(), [&](int rank) { return total(sent[index_of(rank)]); },
        [&](int rank) { return total(received[index_of(rank)]); },
        [&](int rank) {
          request.counts = sent[index_of(rank)];
          request.recv_counts = received[index_of(rank)];
          return plan_of(request, rank);
        });
    ASSERT_EQ(result.error, "");
    for (int b = 0; b < world(); ++b) {
      std::size_t at = 0;
      for (int a = 0; a < world(); ++a) {
        const std::size_t offset = Partition::of(sent[index_of(a)]).offset(b);
        for (std::size_t i = 0; i < unequal_block(a, b); ++i) {
          ASSERT_EQ(result.outputs[index_of(b)][at++], input_symbol(a, offset + i));
        }
      }
    }
  });
}

TEST_P(EveryPlan, ScatterHandsEachRankItsPart) {
  for (const auto& each : partitions()) {
    const Partition parts = Partition::of(each);
    for (int root = 0; root < world(); ++root) {
      const PlanRequest request{.kind = CollectiveKind::kScatter,
                                .world = world(),
                                .root = root,
                                .count = parts.total(),
                                .counts = each};
      const auto result = simulate(
          world(), [&](int rank) { return rank == root ? parts.total() : 0; },
          [&](int rank) { return parts.count(rank); },
          [&](int rank) { return plan_of(request, rank); });
      ASSERT_EQ(result.error, "");
      for (int rank = 0; rank < world(); ++rank) {
        for (std::size_t i = 0; i < parts.count(rank); ++i) {
          ASSERT_EQ(result.outputs[index_of(rank)][i], input_symbol(root, parts.offset(rank) + i));
        }
      }
    }
  }
}

TEST_P(EveryPlan, GatherCollectsEveryPartAtTheRoot) {
  for (const auto& each : partitions()) {
    const Partition parts = Partition::of(each);
    for (int root = 0; root < world(); ++root) {
      const PlanRequest request{.kind = CollectiveKind::kGather,
                                .world = world(),
                                .root = root,
                                .count = parts.total(),
                                .counts = each};
      const auto result = simulate(
          world(), [&](int rank) { return parts.count(rank); },
          [&](int rank) { return rank == root ? parts.total() : 0; },
          [&](int rank) { return plan_of(request, rank); });
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
TEST_P(EveryPlan, BarrierEndsOnlyAfterEveryRankHasBeenHeard) {
  const PlanRequest request{.kind = CollectiveKind::kBarrier, .world = world()};
  std::vector<Plan> plans;
  for (int rank = 0; rank < world(); ++rank) plans.push_back(plan_of(request, rank));
  std::vector<std::set<std::size_t>> heard(p());
  for (std::size_t rank = 0; rank < p(); ++rank) heard[rank].insert(rank);
  for (std::size_t round = 0; round < plans[0].steps.size(); ++round) {
    const auto before = heard;
    for (std::size_t rank = 0; rank < p(); ++rank) {
      for (const PlannedRecv& recv : plans[rank].steps[round].recvs) {
        heard[rank].insert(before[index_of(recv.peer)].begin(), before[index_of(recv.peer)].end());
      }
    }
  }
  for (std::size_t rank = 0; rank < p(); ++rank) EXPECT_EQ(heard[rank].size(), p());
  EXPECT_EQ(simulate(world(), 0, 0, [&](int rank) { return plans[index_of(rank)]; }).error, "");
}

INSTANTIATE_TEST_SUITE_P(Worlds, EveryPlan, ::testing::Range(1, 18));

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
