// The formulas of device kernels against the loops of the CPU, bit by bit.
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/dtype.h"
#include "runtime/collective/reduction.h"
#include "runtime/device/reduce_element.h"

namespace dlaunch {
namespace {

template <typename T>
std::vector<T> values_of(std::mt19937& random, std::size_t count) {
  std::vector<T> values(count);
  for (T& value : values) {
    const auto bits = static_cast<std::uint32_t>(random());
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>((std::uint64_t{bits} << 32) | random());
    } else {
      value = static_cast<T>(static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-28F);
    }
  }
  if constexpr (!std::is_integral_v<T>) {
    values[0] = static_cast<T>(std::numeric_limits<float>::infinity());
    values[1] = static_cast<T>(0.0F);
  }
  return values;
}

template <ReduceOp kOp, typename T>
void expect_the_same_bits(std::mt19937& random, int ranks) {
  constexpr std::size_t kCount = 501;
  using Wide = ReducedIn<kOp, T>;
  std::vector<std::vector<T>> inputs;
  std::vector<const void*> operands;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(values_of<T>(random, kCount));
    operands.push_back(inputs.back().data());
  }
  const int divisor = kOp == ReduceOp::kAvg ? ranks : 1;
  std::vector<T> expected(kCount);
  reduce_operands(kOp, dtype_of<T>, expected.data(), operands, kCount, divisor);
  std::vector<T> results(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    auto sum = static_cast<Wide>(inputs[0][i]);
    for (int rank = 1; rank < ranks; ++rank) {
      sum =
          combine_elements<kOp>(sum, static_cast<Wide>(inputs[static_cast<std::size_t>(rank)][i]));
    }
    results[i] = static_cast<T>(finish_element(sum, divisor));
  }
  EXPECT_EQ(std::memcmp(results.data(), expected.data(), kCount * sizeof(T)), 0)
      << to_string(kOp) << " " << to_string(dtype_of<T>) << " of " << ranks;
}

TEST(ReduceElement, HasTheBitsOfTheReductionOnTheHost) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const int ranks : {1, 2, 3, 7}) {
    for (const DType dtype : kAllDTypes) {
      visit_dtype(dtype, [&]<typename T>() {
        expect_the_same_bits<ReduceOp::kSum, T>(random, ranks);
        expect_the_same_bits<ReduceOp::kAvg, T>(random, ranks);
        expect_the_same_bits<ReduceOp::kMin, T>(random, ranks);
        expect_the_same_bits<ReduceOp::kMax, T>(random, ranks);
        expect_the_same_bits<ReduceOp::kProd, T>(random, ranks);
        if constexpr (std::is_integral_v<T>) {
          expect_the_same_bits<ReduceOp::kBand, T>(random, ranks);
          expect_the_same_bits<ReduceOp::kBor, T>(random, ranks);
          expect_the_same_bits<ReduceOp::kBxor, T>(random, ranks);
        }
      });
    }
  }
}

TEST(ReduceElement, HandsOnNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(is_nan_element(combine_elements<ReduceOp::kMin>(nan, 1.0F)));
  EXPECT_TRUE(is_nan_element(combine_elements<ReduceOp::kMin>(1.0F, nan)));
  EXPECT_TRUE(is_nan_element(combine_elements<ReduceOp::kMax>(nan, 1.0F)));
  EXPECT_TRUE(is_nan_element(combine_elements<ReduceOp::kMax>(1.0F, nan)));
}

}  // namespace
}  // namespace dlaunch
