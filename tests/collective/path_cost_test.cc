// The formulas against the plans that they are about.
#include "runtime/collective/path_cost.h"

#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/collective/algorithms.h"
#include "runtime/collective/topology.h"
#include "tests/collective/timed_simulation.h"

namespace dlaunch::testing {
namespace {

using HostOfRank = std::vector<int>;

HostOfRank one_host(int ranks) {
  return HostOfRank(static_cast<std::size_t>(ranks), 0);
}

// One after the other.
HostOfRank several_hosts(int hosts, int ranks_of_each) {
  HostOfRank host_of_rank;
  for (int rank = 0; rank < hosts * ranks_of_each; ++rank) {
    host_of_rank.push_back(rank / ranks_of_each);
  }
  return host_of_rank;
}

TopologySummary summary_of(std::span<const int> host_of_rank) {
  return summarize({.ranks = static_cast<int>(host_of_rank.size()),
                    .host_of_rank = {host_of_rank.begin(), host_of_rank.end()}});
}

// One cost at a time; overheads are never longer than latencies.
constexpr SimulatedCosts kInsideHosts[] = {{.message = {.latency = 1}},
                                           {.message = {.latency = 1, .overhead = 1}},
                                           {.message = {.per_element = 1}},
                                           {.reduce_per_element = 1},
                                           {.copy_per_element = 1}};
constexpr SimulatedCosts kNetworkLatency[] = {{.network = {.latency = 1}}};
constexpr SimulatedCosts kNetworkBytes[] = {{.network = {.per_element = 1}}};

double formula(const PlanRequest& request, const SimulatedCosts& costs) {
  const CollectiveShape shape{.kind = request.kind,
                              .algorithm = request.algorithm,
                              .order = request.order,
                              .bytes = static_cast<double>(request.count),
                              .element_bytes = 1};
  const PathCost cost = message_cost(shape, summary_of(request.host_of_rank));
  return cost[Effort::kHostLatency] * costs.message.latency +
         cost[Effort::kHostOverhead] * costs.message.overhead +
         cost[Effort::kHostBytes] * costs.message.per_element +
         cost[Effort::kNetworkLatency] * costs.network.latency +
         cost[Effort::kNetworkOverhead] * costs.network.overhead +
         cost[Effort::kNetworkBytes] * costs.network.per_element +
         cost[Effort::kReducedBytes] * costs.reduce_per_element +
         cost[Effort::kCopiedBytes] * costs.copy_per_element;
}

double simulated(PlanRequest request, const SimulatedCosts& costs) {
  return simulated_time(request.host_of_rank, costs, [&](int rank) {
    request.rank = rank;
    return make_plan(request);
  });
}

template <typename Check>
void for_every_algorithm(const HostOfRank& host_of_rank, std::span<const SimulatedCosts> all_costs,
                         const Check& check) {
  const auto world = static_cast<int>(host_of_rank.size());
  for (const CollectiveKind kind : kAllCollectiveKinds) {
    for (const Algorithm algorithm : algorithms_of(kind)) {
      for (const ReduceOrder order : {ReduceOrder::kAny, ReduceOrder::kRanks}) {
        const PlanRequest request{.kind = kind,
                                  .algorithm = algorithm,
                                  .order = order,
                                  .world = world,
                                  .root = 0,
                                  .count = host_of_rank.size() * 24,
                                  .host_of_rank = host_of_rank};
        for (const SimulatedCosts& costs : all_costs) {
          SCOPED_TRACE(std::string(to_string(kind)) + " " + std::string(to_string(algorithm)) +
                       (order == ReduceOrder::kRanks ? " in rank order" : "") + " on " +
                       std::to_string(world) + " ranks of " +
                       std::to_string(host_of_rank.back() + 1) + " hosts, cost " +
                       std::to_string(&costs - all_costs.data()));
          check(request, costs);
        }
      }
    }
  }
}

TEST(PathCost, IsWhatThePlansOfAPowerOfTwoTake) {
  for (const int world : {2, 4, 8, 16}) {
    for_every_algorithm(one_host(world), kInsideHosts,
                        [](const PlanRequest& request, const SimulatedCosts& costs) {
                          EXPECT_NEAR(formula(request, costs), simulated(request, costs), 1e-6);
                        });
  }
}

void expect_near(const HostOfRank& host_of_rank, std::span<const SimulatedCosts> all_costs,
                 double least, double most) {
  for_every_algorithm(host_of_rank, all_costs,
                      [&](const PlanRequest& request, const SimulatedCosts& costs) {
                        const double want = simulated(request, costs);
                        EXPECT_GE(formula(request, costs), least * want);
                        EXPECT_LE(formula(request, costs), most * want);
                      });
}

TEST(PathCost, IsNearWhatThePlansOfOtherNumbersTake) {
  for (const int world : {3, 5, 6, 7, 9, 12, 17}) {
    expect_near(one_host(world), kInsideHosts, 0.75, 2);  // ceil(log2 p) is more than a path of 3
  }
}

// Messages of ranks of one host share its link.
TEST(PathCost, IsNearWhatThePlansOfSeveralHostsTakeOfTheirLinks) {
  for (const auto& [hosts, ranks] :
       {std::pair(2, 2), std::pair(2, 8), std::pair(4, 4), std::pair(4, 8), std::pair(8, 8),
        std::pair(8, 1), std::pair(16, 1), std::pair(3, 3), std::pair(3, 6), std::pair(5, 2),
        std::pair(2, 5), std::pair(5, 1), std::pair(2, 6)}) {
    expect_near(several_hosts(hosts, ranks), kNetworkBytes, 0.65, 2);
    // A round counts as one between hosts also if only some of its messages are: round the ring,
    // a way is so once in `ranks` rounds, and at its ends.
    expect_near(several_hosts(hosts, ranks), kNetworkLatency, 0.65, std::max(2.0, 1.25 * ranks));
  }
}

// One message of a tree's level crosses a border of two hosts, and none where the level is inside.
TEST(PathCost, OfATreeOnSeveralHostsIsExact) {
  for (const CollectiveKind kind : {CollectiveKind::kBroadcast, CollectiveKind::kReduce}) {
    for (const auto& [hosts, ranks] :
         {std::pair(2, 2), std::pair(2, 8), std::pair(4, 8), std::pair(8, 1)}) {
      const HostOfRank host_of_rank = several_hosts(hosts, ranks);
      const PathCost cost = message_cost(
          {.kind = kind, .algorithm = Algorithm::kTree, .bytes = 1000}, summary_of(host_of_rank));
      const int levels_between = std::bit_width(static_cast<unsigned>(hosts)) - 1;
      EXPECT_EQ(cost[Effort::kNetworkLatency], levels_between);
      EXPECT_EQ(cost[Effort::kNetworkBytes], 1000 * levels_between);
      EXPECT_EQ(cost[Effort::kHostLatency], std::bit_width(static_cast<unsigned>(ranks)) - 1);
    }
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
        const PathCost cost = message_cost({.kind = kind,
                                            .algorithm = algorithm,
                                            .bytes = static_cast<double>(request.count),
                                            .element_bytes = 1},
                                           summary_of(one_host(world)));
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
