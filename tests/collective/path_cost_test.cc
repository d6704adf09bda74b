// The formulas against the plans that they are about.
#include "runtime/collective/path_cost.h"

#include <string>

#include <gtest/gtest.h>

#include "runtime/collective/algorithms.h"
#include "tests/collective/timed_simulation.h"

namespace dlaunch::testing {
namespace {

// One cost at a time; overheads are never longer than latencies.
constexpr SimulatedCosts kCosts[] = {{.latency = 1},
                                     {.latency = 1, .overhead = 1},
                                     {.per_element = 1},
                                     {.reduce_per_element = 1},
                                     {.copy_per_element = 1}};

double formula(const PlanRequest& request, const SimulatedCosts& costs) {
  const CollectiveShape shape{.kind = request.kind,
                              .algorithm = request.algorithm,
                              .order = request.order,
                              .bytes = static_cast<double>(request.count),
                              .element_bytes = 1};
  const PathCost cost = message_cost(
      shape,
      {.ranks = request.world, .most_per_host = request.world, .least_per_host = request.world});
  return cost[Effort::kHostLatency] * costs.latency + cost[Effort::kHostOverhead] * costs.overhead +
         cost[Effort::kHostBytes] * costs.per_element +
         cost[Effort::kReducedBytes] * costs.reduce_per_element +
         cost[Effort::kCopiedBytes] * costs.copy_per_element;
}

double simulated(PlanRequest request, const SimulatedCosts& costs) {
  return simulated_time(request.world, costs, [&](int rank) {
    request.rank = rank;
    return make_plan(request);
  });
}

template <typename Check>
void for_every_algorithm(int world, const Check& check) {
  for (const CollectiveKind kind : kAllCollectiveKinds) {
    for (const Algorithm algorithm : algorithms_of(kind)) {
      for (const ReduceOrder order : {ReduceOrder::kAny, ReduceOrder::kRanks}) {
        const std::size_t count = static_cast<std::size_t>(world) * 24;
        for (const SimulatedCosts& costs : kCosts) {
          SCOPED_TRACE(std::string(to_string(kind)) + " " + std::string(to_string(algorithm)) +
                       (order == ReduceOrder::kRanks ? " in rank order" : "") + " on " +
                       std::to_string(world) + " ranks, cost " + std::to_string(&costs - kCosts));
          check(PlanRequest{.kind = kind,
                            .algorithm = algorithm,
                            .order = order,
                            .world = world,
                            .root = 0,
                            .count = count},
                costs);
        }
      }
    }
  }
}

TEST(PathCost, IsWhatThePlansOfAPowerOfTwoTake) {
  for (const int world : {2, 4, 8, 16}) {
    for_every_algorithm(world, [](const PlanRequest& request, const SimulatedCosts& costs) {
      EXPECT_NEAR(formula(request, costs), simulated(request, costs), 1e-6);
    });
  }
}

TEST(PathCost, IsNearWhatThePlansOfOtherNumbersTake) {
  for (const int world : {3, 5, 6, 7, 9, 12, 17}) {
    for_every_algorithm(world, [](const PlanRequest& request, const SimulatedCosts& costs) {
      const double want = simulated(request, costs);
      EXPECT_GE(formula(request, costs), 0.75 * want);
      EXPECT_LE(formula(request, costs), 2 * want);  // ceil(log2 p) is more than a path of 3
    });
  }
}

// What all ranks of the plans do together.
struct Work {
  double sent = 0;
  double reduced = 0;
};

Work work_of(PlanRequest request) {
  Work work;
  for (request.rank = 0; request.rank < request.world; ++request.rank) {
    for (const PlanStep& step : make_plan(request).steps) {
      for (const PlannedSend& send : step.sends) work.sent += static_cast<double>(send.from.count);
      for (const PlannedRecv& recv : step.recvs) {
        if (recv.landing != Landing::kCopy) work.reduced += static_cast<double>(recv.into.count);
      }
      for (const PlannedReduction& reduction : step.reductions) {
        work.reduced += static_cast<double>(reduction.into.count) *
                        static_cast<double>(reduction.operands.size() - 1);
      }
    }
  }
  return work;
}

// Where all add the same and where a root alone does, the formulas tell the two apart.
TEST(PathCost, KnowsHowMuchAllRanksDoTogether) {
  for (const int world : {2, 3, 4, 5, 7, 8, 12, 16}) {
    for (const CollectiveKind kind : kAllCollectiveKinds) {
      for (const Algorithm algorithm : algorithms_of(kind)) {
        SCOPED_TRACE(std::string(to_string(kind)) + " " + std::string(to_string(algorithm)) +
                     " on " + std::to_string(world) + " ranks");
        const PlanRequest request{.kind = kind,
                                  .algorithm = algorithm,
                                  .world = world,
                                  .root = 0,
                                  .count = static_cast<std::size_t>(world) * 24};
        const Work want = work_of(request);
        const PathCost cost =
            message_cost({.kind = kind,
                          .algorithm = algorithm,
                          .bytes = static_cast<double>(request.count),
                          .element_bytes = 1},
                         {.ranks = world, .most_per_host = world, .least_per_host = world});
        EXPECT_GE(world * cost.mean(Effort::kHostBytes), 0.75 * want.sent);
        EXPECT_LE(world * cost.mean(Effort::kHostBytes), 1.5 * want.sent);
        EXPECT_GE(world * cost.mean(Effort::kReducedBytes), 0.75 * want.reduced);
        EXPECT_LE(world * cost.mean(Effort::kReducedBytes), 1.5 * want.reduced);
      }
    }
  }
}

}  // namespace
}  // namespace dlaunch::testing
