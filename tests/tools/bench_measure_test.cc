// What dbench computes beside timing: statistics, the values in buffers, and the errors of results.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tools/bench/measure/repeat.h"
#include "tools/bench/measure/statistics.h"
#include "tools/bench/measure/values.h"
#include "tools/bench/typed_values.h"

namespace dlaunch::bench {
namespace {

TEST(Statistics, InterpolateBetweenValues) {
  const Summary summary = summarize({5, 1, 4, 2, 3, 11, 6, 8, 7, 10, 9});
  EXPECT_EQ(summary.repetitions, 11U);
  EXPECT_DOUBLE_EQ(summary.median, 6);
  EXPECT_DOUBLE_EQ(summary.p10, 2);
  EXPECT_DOUBLE_EQ(summary.p90, 10);
  EXPECT_DOUBLE_EQ(summarize({1, 2}).median, 1.5);
  EXPECT_DOUBLE_EQ(summarize({7}).p90, 7);
  EXPECT_EQ(summarize({}).repetitions, 0U);
}

TEST(Statistics, CallAMedianStableOnlyIfItsIntervalIsNarrow) {
  EXPECT_FALSE(median_is_stable({1, 1, 1}, 0.01)) << "too few values";
  EXPECT_TRUE(median_is_stable(std::vector<double>(50, 3.0), 0.01));
  std::vector<double> spread;
  for (int i = 0; i < 100; ++i) spread.push_back(1 + 0.01 * i);
  EXPECT_FALSE(median_is_stable(spread, 0.01));
  std::vector<double> outliers(100, 2.0);
  std::fill(outliers.begin(), outliers.begin() + 20, 1000.0);
  EXPECT_TRUE(median_is_stable(outliers, 0.01)) << "outliers do not move the median";
}

// A rank on its own that notes what happens.
class LoneRank : public Ranks {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override { events.push_back('b'); }
  void maximum(std::span<double>) override {}
  std::vector<char> events;
};

TEST(Repetition, PreparesMeetsRunsMeetsAndChecksInThisOrder) {
  LoneRank rank;
  const Limits limits{.warmup = 2, .least = 3, .most = 3, .seconds = 60};
  const auto seconds = repeat(rank, limits,
                              {.prepare = [&](std::uint64_t) { rank.events.push_back('p'); },
                               .run = [&] { rank.events.push_back('r'); },
                               .check = [&](std::uint64_t) { rank.events.push_back('c'); }});
  EXPECT_EQ(seconds.size(), 3U) << "warm-up does not count";
  ASSERT_EQ(rank.events.size(), 5U * 5);
  for (std::size_t i = 0; i < rank.events.size(); ++i) {
    EXPECT_EQ(rank.events[i], "pbrbc"[i % 5]) << i;
  }
}

TEST(Repetition, NumbersRepetitionsSoThatNoTwoAreAlike) {
  LoneRank rank;
  std::vector<std::uint64_t> numbers;
  repeat(rank, {.warmup = 1, .least = 5, .most = 20, .seconds = 60, .tolerance = 0},
         {.prepare = [&](std::uint64_t number) { numbers.push_back(number); },
          .run = [] {},
          .check = {}});
  EXPECT_EQ(numbers.size(), 21U);
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], i);
}

TEST(Repetition, EndsWhenItsTimeIsOver) {
  LoneRank rank;
  const auto seconds = repeat(rank, {.warmup = 0, .least = 2, .most = 1'000'000, .seconds = 1e-9},
                              {.prepare = {}, .run = [] {}, .check = {}});
  EXPECT_EQ(seconds.size(), 2U);
}

TEST(Values, AreOfTheirRangeAndDifferByRankRepetitionAndElement) {
  std::vector<float> first(10'007);
  std::vector<float> other(first.size());
  fill_floats(first.data(), first.size(), 3, 5);
  const auto [low, high] = std::minmax_element(first.begin(), first.end());
  EXPECT_GE(*low, 0.5F);
  EXPECT_LT(*high, 1.5F);
  EXPECT_LT(*low, 0.51F);
  EXPECT_GT(*high, 1.49F);
  const double mean = std::accumulate(first.begin(), first.end(), 0.0) / first.size();
  EXPECT_NEAR(mean, 1.0, 0.01);
  for (const auto& [rank, repetition] : {std::pair{4, 5}, {3, 6}, {5, 3}}) {
    fill_floats(other.data(), other.size(), rank, repetition);
    const auto same = std::inner_product(first.begin(), first.end(), other.begin(), 0, std::plus{},
                                         std::equal_to{});
    EXPECT_LT(same, 10) << "rank " << rank << ", repetition " << repetition;
  }
}

class TypedValues : public ::testing::TestWithParam<DType> {};

// A plain reduction, in another order than any algorithm's: in float or in the type's own integers.
template <typename T>
std::vector<T> plain_sum(const std::vector<std::vector<T>>& inputs) {
  std::vector<T> result(inputs[0].size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      std::uint64_t sum = 0;
      for (const auto& input : inputs) sum += static_cast<std::uint64_t>(input[i]);
      result[i] = static_cast<T>(sum);
    } else {
      double sum = 0;
      for (const auto& input : inputs) {
        if constexpr (std::is_same_v<T, double>) {
          sum += input[i];
        } else {
          sum += static_cast<float>(input[i]);
        }
      }
      if constexpr (std::is_same_v<T, double>) {
        result[i] = sum;
      } else {
        result[i] = static_cast<T>(static_cast<float>(sum));
      }
    }
  }
  return result;
}

TEST_P(TypedValues, OfARightSumAreWithinTheToleranceAndOfAWrongOneAreNot) {
  visit_dtype(GetParam(), [&]<typename T>() {
    constexpr int kRanks = 5;
    std::vector<std::vector<T>> inputs(kRanks, std::vector<T>(1009));
    for (int rank = 0; rank < kRanks; ++rank) {
      fill({inputs[rank].data(), inputs[rank].size(), GetParam()}, rank, 7);
    }
    std::vector<T> sum = plain_sum(inputs);
    const Origin origin{.ranks = {0, 1, 2, 3, 4}};
    const ConstBuffer buffer(sum.data(), sum.size(), GetParam());
    EXPECT_LE(error_of(buffer, origin, 7), tolerance_of(GetParam(), kRanks));
    EXPECT_GT(error_of(buffer, origin, 8), tolerance_of(GetParam(), kRanks)) << "stale values";

    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 generator(seed);
    std::size_t where = generator() % sum.size();
    while (sum[where] == inputs[0][where]) where = generator() % sum.size();  // as u8 may be
    sum[where] = inputs[0][where];  // as if only one rank had been added
    EXPECT_GT(error_of(buffer, origin, 7), tolerance_of(GetParam(), kRanks)) << where;
  });
}

INSTANTIATE_TEST_SUITE_P(AllTypes, TypedValues, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(TypedValues, OfAPartBeginAtItsFirstElement) {
  std::vector<float> whole(100);
  fill(whole, 2, 1);
  const ConstBuffer part(whole.data() + 60, 40, DType::kF32);
  EXPECT_EQ(error_of(part, {.ranks = {2}, .first_element = 60}, 1), 0);
  EXPECT_GT(error_of(part, {.ranks = {2}, .first_element = 59}, 1), 0.001);
}

TEST(Values, AreCheckedFromTheirFirstElementOnAndOfTheirRanks) {
  std::vector<float> sums(100);
  std::vector<float> other(sums.size());
  fill_floats(sums.data(), sums.size(), 2, 7);
  fill_floats(other.data(), other.size(), 4, 7);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += other[i];
  const std::array both{2, 4};
  EXPECT_LT(error_of_float_sums(sums.data() + 60, 40, both, 60, 7), 1e-6);
  EXPECT_GT(error_of_float_sums(sums.data() + 60, 40, both, 59, 7), 0.001);
  EXPECT_GT(error_of_float_sums(sums.data(), 100, std::array{2, 3}, 0, 7), 0.001);
}

TEST(TypedValues, ThatAreNoNumbersAreInfinitelyWrong) {
  std::vector<float> values(10);
  fill(values, 0, 0);
  values[4] = NAN;
  EXPECT_EQ(error_of(values, {.ranks = {0}}, 0), INFINITY);
  EXPECT_EQ(error_of_float_sums(values.data(), values.size(), std::array{0}, 0, 0), INFINITY);
}

}  // namespace
}  // namespace dlaunch::bench
