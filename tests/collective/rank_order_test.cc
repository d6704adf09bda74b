// ReduceOrder::kRanks: the same bits from every algorithm, those of a plain loop over the ranks.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/collective/algorithms.h"
#include "runtime/collective/reduction.h"
#include "tests/collective/loopback_plans.h"

namespace dlaunch::testing {
namespace {

// Inputs whose sums depend on the order of additions.
template <typename T>
std::vector<std::vector<T>> random_inputs(int world, std::size_t count, std::mt19937& random) {
  std::vector<std::vector<T>> inputs(static_cast<std::size_t>(world));
  for (auto& input : inputs) {
    for (std::size_t i = 0; i < count; ++i) {
      const double magnitude = std::ldexp(1.0, std::uniform_int_distribution<int>(-9, 9)(random));
      const double value = std::uniform_real_distribution<double>(-1, 1)(random) * magnitude;
      input.push_back(static_cast<T>(static_cast<float>(value)));
    }
  }
  return inputs;
}

// ((x0 + x1) + x2) + ... in `Wide`, rounded once.
template <typename T, typename Wide>
std::vector<T> sum_in_rank_order(const std::vector<std::vector<T>>& inputs, bool average) {
  std::vector<T> sums;
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    Wide sum = static_cast<Wide>(inputs[0][i]);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank)
      sum += static_cast<Wide>(inputs[rank][i]);
    if (average) sum /= static_cast<Wide>(inputs.size());
    sums.push_back(static_cast<T>(sum));
  }
  return sums;
}

template <typename T>
void expect_same_bits(const std::vector<T>& got, const std::vector<T>& want) {
  ASSERT_EQ(got.size(), want.size());
  if (got.empty()) return;
  ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(T)), 0);
}

// Runs an all_reduce in place on copies of the inputs, in the type in which its messages travel.
template <typename T>
std::vector<std::vector<T>> all_reduce(const PlanRequest& request, ReduceOp op,
                                       std::vector<std::vector<T>> data) {
  LoopbackPlans world(request.world);
  std::vector<Plan> plans;
  for (int rank = 0; rank < request.world; ++rank) {
    PlanRequest own = request;
    own.rank = rank;
    plans.push_back(make_plan(own));
  }
  for (std::size_t rank = 0; rank < data.size(); ++rank) {
    auto* memory = reinterpret_cast<std::byte*>(data[rank].data());
    world.executions[rank]->start(
        {.plan = &plans[rank], .input = memory, .output = memory, .dtype = dtype_of<T>, .op = op});
  }
  world.drive_all();
  for (const auto& execution : world.executions) {
    EXPECT_TRUE(execution->status().ok()) << execution->status().to_string();
  }
  return data;
}

// The same, with halves widened around the plan where it asks for that.
template <typename T>
std::vector<std::vector<T>> widened_all_reduce(const PlanRequest& request, ReduceOp op,
                                               const std::vector<std::vector<T>>& inputs) {
  if constexpr (sizeof(T) == 2) {
    if (type_of_plan(request.kind, request.algorithm, request.order, op, dtype_of<T>) ==
        DType::kF32) {
      std::vector<std::vector<float>> wide;
      for (const auto& input : inputs) {
        auto& vector = wide.emplace_back();
        for (const T value : input) vector.push_back(static_cast<float>(value));
      }
      std::vector<std::vector<T>> results;
      for (const auto& sums : all_reduce(request, op, wide)) {
        auto& result = results.emplace_back();
        for (const float sum : sums) result.push_back(static_cast<T>(sum));
      }
      return results;
    }
  }
  return all_reduce(request, op, inputs);
}

template <typename T, typename Wide>
void expect_rank_order(std::mt19937& random) {
  for (const int world : {1, 2, 3, 4, 5, 8, 11}) {
    const auto p = static_cast<std::size_t>(world);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, p - 1, std::size_t{97}}) {
      const auto inputs = random_inputs<T>(world, count, random);
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        const auto want = sum_in_rank_order<T, Wide>(inputs, op == ReduceOp::kAvg);
        for (const Algorithm algorithm : algorithms_of(CollectiveKind::kAllReduce)) {
          SCOPED_TRACE(std::string(to_string(algorithm)) + " " + std::string(to_string(op)) + " " +
                       std::string(to_string(dtype_of<T>)) + "[" + std::to_string(count) + "] on " +
                       std::to_string(world) + " ranks");
          const PlanRequest request{.kind = CollectiveKind::kAllReduce,
                                    .algorithm = algorithm,
                                    .order = ReduceOrder::kRanks,
                                    .world = world,
                                    .count = count};
          for (const auto& result : widened_all_reduce(request, op, inputs)) {
            expect_same_bits(result, want);
          }
        }
      }
    }
  }
}

class RankOrder : public ::testing::Test {
 protected:
  const unsigned seed_ = std::random_device{}();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::mt19937 random_{seed_};
};

TEST_F(RankOrder, GivesTheSameBitsInF32) {
  expect_rank_order<float, float>(random_);
}
TEST_F(RankOrder, GivesTheSameBitsInF64) {
  expect_rank_order<double, double>(random_);
}
TEST_F(RankOrder, GivesTheSameBitsInF16RoundedOnce) {
  expect_rank_order<Float16, float>(random_);
}
TEST_F(RankOrder, GivesTheSameBitsInBF16RoundedOnce) {
  expect_rank_order<BFloat16, float>(random_);
}

}  // namespace
}  // namespace dlaunch::testing
