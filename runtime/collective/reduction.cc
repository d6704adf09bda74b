#include "runtime/collective/reduction.h"

#include <cmath>
#include <type_traits>

namespace dlaunch {
namespace {

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// The type in which T is computed: float for the halves; unsigned for the sums and products of
// integers, where wrapping around is defined.
template <typename T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;
template <typename T>
struct WrappingOf {
  using Type = Wide<T>;
};
template <>
struct WrappingOf<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct WrappingOf<std::int64_t> {
  using Type = std::uint64_t;
};
template <>
struct WrappingOf<std::uint8_t> {
  using Type = std::uint32_t;
};
template <typename T>
using Wrapping = typename WrappingOf<T>::Type;

struct Add {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Multiply {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
// `|` rather than `||` leaves no branch in the loop.
template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}
struct Minimum {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<int>(b < a) | static_cast<int>(is_nan(b)) ? b : a;
  }
};
struct Maximum {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<int>(b > a) | static_cast<int>(is_nan(b)) ? b : a;
  }
};

template <typename Op, bool kAccumulatorLeft, typename T>
void accumulate_loop(T* __restrict accumulator, const T* __restrict operand, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto mine = static_cast<Wide<T>>(accumulator[i]);
    const auto other = static_cast<Wide<T>>(operand[i]);
    accumulator[i] =
        static_cast<T>(kAccumulatorLeft ? Op::apply(mine, other) : Op::apply(other, mine));
  }
}

template <typename Op>
void accumulate_with(DType dtype, void* accumulator, const void* operand, std::size_t count,
                     AccumulatorSide side) {
  visit_dtype(dtype, [&]<typename T>() {
    auto* into = static_cast<T*>(accumulator);
    const auto* from = static_cast<const T*>(operand);
    if (side == AccumulatorSide::kLeft) {
      accumulate_loop<Op, true>(into, from, count);
    } else {
      accumulate_loop<Op, false>(into, from, count);
    }
  });
}

}  // namespace

void accumulate(ReduceOp op, DType dtype, void* accumulator, const void* operand, std::size_t count,
                AccumulatorSide side) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return accumulate_with<Add>(dtype, accumulator, operand, count, side);
    case ReduceOp::kProd:
      return accumulate_with<Multiply>(dtype, accumulator, operand, count, side);
    case ReduceOp::kMin:
      return accumulate_with<Minimum>(dtype, accumulator, operand, count, side);
    case ReduceOp::kMax:
      return accumulate_with<Maximum>(dtype, accumulator, operand, count, side);
  }
}

void divide(DType dtype, void* values, std::size_t count, int divisor) {
  visit_dtype(dtype, [&]<typename T>() {
    auto* array = static_cast<T*>(values);
    const auto by = static_cast<Wide<T>>(divisor);
    for (std::size_t i = 0; i < count; ++i) {
      array[i] = static_cast<T>(static_cast<Wide<T>>(array[i]) / by);
    }
  });
}

void widen(DType dtype, const void* from, std::int64_t* into, std::size_t count) {
  const auto convert = [&]<typename T>(const T* values) {
    for (std::size_t i = 0; i < count; ++i) into[i] = values[i];
  };
  if (dtype == DType::kI32) return convert(static_cast<const std::int32_t*>(from));
  convert(static_cast<const std::uint8_t*>(from));
}

void narrow(DType dtype, const std::int64_t* from, void* into, std::size_t count) {
  const auto convert = [&]<typename T>(T* values) {
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(from[i]);
  };
  if (dtype == DType::kI32) return convert(static_cast<std::int32_t*>(into));
  convert(static_cast<std::uint8_t*>(into));
}

}  // namespace dlaunch
