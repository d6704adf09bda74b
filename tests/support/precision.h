// What tests need to know about the precision of element types.
#pragma once

#include <type_traits>

#include "runtime/base/dtype.h"

namespace dlaunch::testing {

/// Any element as a double, which holds all of them exactly (i64 up to 2^53).
template <typename T>
double to_double(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return static_cast<float>(value);
  } else {
    return static_cast<double>(value);
  }
}

/// The largest relative error of one rounding to T; 0 for integers.
template <typename T>
constexpr double unit_roundoff() {
  if (std::is_same_v<T, Float16>) return 0x1p-11;
  if (std::is_same_v<T, BFloat16>) return 0x1p-8;
  if (std::is_same_v<T, float>) return 0x1p-24;
  return std::is_same_v<T, double> ? 0x1p-53 : 0;
}

/// The same for the type in which sums of T are computed: halves are added in float.
template <typename T>
constexpr double unit_roundoff_of_sums() {
  const bool half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
  return half ? unit_roundoff<float>() : unit_roundoff<T>();
}

}  // namespace dlaunch::testing
