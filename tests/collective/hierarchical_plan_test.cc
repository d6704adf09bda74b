// Hierarchical all-reduce over hosts of equal and unequal size, with ranks placed in any way.
#include "runtime/collective/hierarchical.h"

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/collective/plan_simulation.h"

namespace dlaunch::testing {
namespace {

void expect_reduced(const std::vector<int>& hosts, std::size_t count) {
  const int world = static_cast<int>(hosts.size());
  const auto plan = [&](int rank) { return hierarchical_all_reduce(rank, hosts, count); };
  for (const bool in_place : {false, true}) {
    const auto result =
        in_place ? simulate_in_place(world, count, plan) : simulate(world, count, count, plan);
    ASSERT_EQ(result.error, "");
    for (const SymbolVector& output : result.outputs) {
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(output[i], reduced_symbol(world, i)) << "count " << count << ", element " << i;
        ASSERT_EQ(output[i].order, result.outputs[0][i].order);
      }
    }
  }
}

TEST(HierarchicalPlan, ReducesEveryElementOnceWhereverTheRanksAre) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int world = 1; world <= 17; ++world) {
    for (const int most_hosts : {1, 2, 3, world}) {
      std::vector<int> hosts;
      for (int rank = 0; rank < world; ++rank) {
        hosts.push_back(std::uniform_int_distribution<int>(0, most_hosts - 1)(random));
      }
      for (const std::size_t count : {0U, 1U, 7U, 40U}) expect_reduced(hosts, count);
    }
  }
}

TEST(HierarchicalPlan, ReducesLongVectorsAcrossFewHostsAndMany) {
  expect_reduced({0, 0, 1, 1, 2}, 2 * 4096 + 3);      // ring across 3 hosts, of one leader each
  expect_reduced({0, 1, 2, 3}, 4097);                 // halving and doubling across 4,
  expect_reduced({0, 1, 2, 3, 4, 5, 6, 7, 8}, 4097);  // and across 9, but then a ring again
  expect_reduced({0, 1, 2, 3, 4, 5, 6, 7, 8}, 16385);
}

// A vector of n elements on H hosts of m ranks: a rank sends n (m-1)/m twice inside its host, and
// across what an all-reduce of n/m elements on H ranks sends.
TEST(HierarchicalPlan, SendsBetweenHostsOnlyWhatAnAllReduceOfItsPartNeeds) {
  constexpr int kHosts = 4;
  constexpr int kEach = 3;
  constexpr std::size_t kCount = std::size_t{12} * 4096;
  std::vector<int> hosts(std::size_t{kHosts} * kEach);
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    hosts[rank] = static_cast<int>(rank) / kEach;
  for (int rank = 0; rank < kHosts * kEach; ++rank) {
    std::size_t inside = 0;
    std::size_t across = 0;
    for (const PlanStep& step : hierarchical_all_reduce(rank, hosts, kCount).steps) {
      for (const PlannedSend& send : step.sends) {
        const bool near =
            hosts[static_cast<std::size_t>(send.peer)] == hosts[static_cast<std::size_t>(rank)];
        (near ? inside : across) += send.from.count;
      }
    }
    EXPECT_EQ(inside, 2 * kCount * (kEach - 1) / kEach);
    EXPECT_EQ(across, 2 * (kCount / kEach) * (kHosts - 1) / kHosts);
  }
}

TEST(AcrossHosts, RingsAreForLongPartsOfHostsThatAreNoPowerOfTwo) {
  for (const int hosts : {2, 3, 9, 16}) {
    EXPECT_EQ(algorithm_across_hosts(hosts, 4096), Algorithm::kButterfly) << hosts;
  }
  for (const int hosts : {2, 4, 16}) {
    EXPECT_EQ(algorithm_across_hosts(hosts, 1 << 24), Algorithm::kHalvingDoubling) << hosts;
  }
  EXPECT_EQ(algorithm_across_hosts(3, 4097), Algorithm::kRing);
  EXPECT_EQ(algorithm_across_hosts(9, 4097), Algorithm::kHalvingDoubling);
  EXPECT_EQ(algorithm_across_hosts(9, 16385), Algorithm::kRing);
}

}  // namespace
}  // namespace dlaunch::testing
