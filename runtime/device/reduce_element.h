// One element of a reduction, as device kernels compute it: with the bits of reduce_operands()
// (collective/reduction.h), which is what the tests compare it with, except that GPUs give a NaN
// bits of their own. Constexpr functions, for host and device code.
#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/collective/reduction.h"
#include "runtime/collective/types.h"

namespace dlaunch {

template <typename Wide>
constexpr bool is_nan_element(Wide value) {
  if constexpr (std::is_floating_point_v<Wide>)
    return value != value;  // NOLINT(misc-redundant-expression)
  return false;
}

/// a (op) b. Averages add. Integers wrap; minimum and maximum hand on a NaN.
template <ReduceOp kOp, typename Wide>
constexpr Wide combine_elements(Wide a, Wide b) {
  if constexpr (kOp == ReduceOp::kMin) {
    return b < a || is_nan_element(b) ? b : a;
  } else if constexpr (kOp == ReduceOp::kMax) {
    return b > a || is_nan_element(b) ? b : a;
  } else if constexpr (kOp == ReduceOp::kBand) {
    return static_cast<Wide>(a & b);
  } else if constexpr (kOp == ReduceOp::kBor) {
    return static_cast<Wide>(a | b);
  } else if constexpr (kOp == ReduceOp::kBxor) {
    return static_cast<Wide>(a ^ b);
  } else if constexpr (std::is_integral_v<Wide>) {
    using Wrapping = std::make_unsigned_t<std::common_type_t<Wide, std::int32_t>>;
    return static_cast<Wide>(kOp == ReduceOp::kProd
                                 ? static_cast<Wrapping>(a) * static_cast<Wrapping>(b)
                                 : static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  } else {
    return kOp == ReduceOp::kProd ? a * b : a + b;
  }
}

/// What all operands combined become, before it is rounded. `divisor` is 1 but for averages.
template <typename Wide>
constexpr Wide finish_element(Wide value, int divisor) {
  return divisor == 1 ? value : static_cast<Wide>(value / static_cast<Wide>(divisor));
}

}  // namespace dlaunch
