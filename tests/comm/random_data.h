// Random inputs that every rank can compute for every other rank, and plain references in double or
// 128-bit integers.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/collective/types.h"
#include "tests/support/precision.h"

namespace dlaunch::testing {

template <typename T>
inline constexpr bool kIsFloating = is_floating(dtype_of<T>);

/// `count` elements of `rank`'s input: floating ones of either sign with magnitudes in [0.5, 1.5],
/// so that products neither vanish nor overflow; integers over the whole range of u8 and i8,
/// others up to 2^30, or 2^31 if they have no sign.
template <typename T>
std::vector<T> random_values(std::uint64_t seed, int rank, std::size_t count) {
  std::uint64_t state = seed ^ (static_cast<std::uint64_t>(rank) << 40);
  std::vector<T> values(count);
  for (T& value : values) {
    // SplitMix64 (Steele, Lea & Flood 2014): no state in memory, which sanitizers would look at.
    std::uint64_t mixed = state += 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    const auto bits = static_cast<std::uint32_t>(mixed >> 32);
    if constexpr (kIsFloating<T>) {
      const double magnitude = 0.5 + static_cast<double>(bits >> 1) * 0x1p-31;
      value = static_cast<T>(static_cast<float>((bits & 1U) != 0 ? -magnitude : magnitude));
    } else if constexpr (sizeof(T) == 1) {
      value = static_cast<T>(bits);
    } else if constexpr (std::is_unsigned_v<T>) {
      value = bits / 2;
    } else {
      value = static_cast<T>(static_cast<std::int32_t>(bits) / 2);
    }
  }
  return values;
}

/// What the reduction of element `index` of the ranks' inputs must be, and how far off it may be.
struct Expected {
  double value = 0;
  double tolerance = 0;
};

/// Floating types. Each of the p - 1 operations rounds once: a sum of p terms is off by at most
/// (p - 1) u sum|x| to first order, a product by (p - 1) u |product|; a division adds one rounding,
/// and so does a half at the end, whose operations are done in float. 1.1 covers the second order.
template <typename T>
Expected expected_float(ReduceOp op, const std::vector<const T*>& inputs, std::size_t index) {
  double sum = 0;
  double magnitudes = 0;
  double product = 1;
  double least = to_double(inputs[0][index]);
  double most = least;
  for (const T* const input : inputs) {
    const double x = to_double(input[index]);
    sum += x;
    magnitudes += std::abs(x);
    product *= x;
    least = std::min(least, x);
    most = std::max(most, x);
  }
  const double p = static_cast<double>(inputs.size());
  const double u = 1.1 * unit_roundoff_of_sums<T>();
  const double last = 1.1 * unit_roundoff<T>();
  switch (op) {
    case ReduceOp::kSum:
      return {sum, (p - 1) * u * magnitudes + last * std::abs(sum)};
    case ReduceOp::kAvg:
      return {sum / p, ((p - 1) * u * magnitudes + 2 * last * std::abs(sum)) / p};
    case ReduceOp::kProd:
      return {product, (p - 1) * u * std::abs(product) + last * std::abs(product)};
    case ReduceOp::kMin:
      return {least, 0};
    default:
      break;
  }
  return {most, 0};
}

/// Integers, exactly: sums and products modulo 2^bits, averages truncated toward zero.
template <typename T>
T expected_integer(ReduceOp op, const std::vector<const T*>& inputs, std::size_t index) {
  std::uint64_t sum = 0;
  std::int64_t signed_sum = 0;  // of at most 17 values below 2^31: exact
  std::uint64_t product = 1;
  T least = inputs[0][index];
  T most = least;
  auto bits_of_all = static_cast<T>(~T{0});
  T bits_of_any = 0;
  T odd_bits = 0;
  for (const T* const input : inputs) {
    const T value = input[index];
    sum += static_cast<std::uint64_t>(value);
    signed_sum += static_cast<std::int64_t>(value);
    product *= static_cast<std::uint64_t>(value);
    least = std::min(least, value);
    most = std::max(most, value);
    bits_of_all = static_cast<T>(bits_of_all & value);
    bits_of_any = static_cast<T>(bits_of_any | value);
    odd_bits = static_cast<T>(odd_bits ^ value);
  }
  switch (op) {
    case ReduceOp::kSum:
      return static_cast<T>(sum);
    case ReduceOp::kAvg:
      return static_cast<T>(signed_sum / static_cast<std::int64_t>(inputs.size()));
    case ReduceOp::kProd:
      return static_cast<T>(product);
    case ReduceOp::kMin:
      return least;
    case ReduceOp::kMax:
      return most;
    case ReduceOp::kBand:
      return bits_of_all;
    case ReduceOp::kBor:
      return bits_of_any;
    case ReduceOp::kBxor:
      break;
  }
  return odd_bits;
}

/// Describes the first wrong element of a reduction, or is empty. `inputs[rank][i]`.
template <typename T>
std::string wrong_element(ReduceOp op, const std::vector<std::vector<T>>& inputs, std::size_t first,
                          const std::vector<T>& result) {
  std::vector<const T*> begins;
  for (const std::vector<T>& input : inputs) begins.push_back(input.data() + first);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto complain = [&](double want) {
      return "element " + std::to_string(i) + " is " + std::to_string(to_double(result[i])) +
             ", not " + std::to_string(want);
    };
    if constexpr (kIsFloating<T>) {
      const Expected want = expected_float(op, begins, i);
      const double error = std::abs(to_double(result[i]) - want.value);
      if (!(error <= want.tolerance)) return complain(want.value);
    } else {
      const T want = expected_integer(op, begins, i);
      if (result[i] != want) return complain(to_double(want));
    }
  }
  return "";
}

}  // namespace dlaunch::testing
