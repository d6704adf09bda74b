#include "runtime/collective/reduction.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "runtime/base/multiversion.h"

// Everything below is inlined into the functions marked DLAUNCH_MULTIVERSION at the end.
#define DLAUNCH_INLINE [[gnu::always_inline]] inline

namespace dlaunch {
namespace {

// --- conversions without branches, which the compiler can vectorise

template <typename Wide, typename T>
DLAUNCH_INLINE Wide load(T value) {
  if constexpr (std::is_same_v<T, Float16>) {
    // Shifted into place the half is the float divided by 2^112, subnormals too.
    const std::uint32_t magnitude = (value.bits & 0x7fffU) << 13;
    const std::uint32_t sign = (value.bits & 0x8000U) << 16;
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;
    const std::uint32_t special = magnitude >= 0x0f800000U ? 0x7f800000U : 0U;  // inf and NaN
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
  } else {
    return static_cast<Wide>(value);
  }
}

DLAUNCH_INLINE std::uint16_t half_bits(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (word >> 16) & 0x8000U;
  const std::uint32_t magnitude = word & 0x7fffffffU;
  const std::uint32_t normal = (magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  // Adding 0.5 aligns the mantissa of a subnormal half so that the hardware rounds it.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  std::uint32_t bits = magnitude < 0x38800000U ? subnormal : normal;
  bits = magnitude >= 0x477ff000U ? 0x7c00U : bits;  // overflow: inf
  bits = magnitude > 0x7f800000U ? 0x7e00U : bits;   // NaN
  return static_cast<std::uint16_t>(bits | sign);
}

DLAUNCH_INLINE std::uint16_t bfloat_bits(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (word + 0x7fffU + ((word >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (word >> 16) | 0x40U;
  return static_cast<std::uint16_t>((word & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

template <typename T, typename Wide>
DLAUNCH_INLINE T store(Wide value) {
  T result;
  if constexpr (std::is_same_v<T, Float16>) {
    result.bits = half_bits(value);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    result.bits = bfloat_bits(value);
  } else {
    result = static_cast<T>(value);
  }
  return result;
}

// --- operations

// Unsigned for the sums and products of integers, where wrapping around is defined.
template <typename T, bool kInteger = std::is_integral_v<T>>
struct WrappingOf {
  using Type = std::make_unsigned_t<std::common_type_t<T, std::int32_t>>;
};
template <typename T>
struct WrappingOf<T, false> {
  using Type = T;
};
template <typename T>
using Wrapping = typename WrappingOf<T>::Type;

struct Add {
  template <typename T>
  DLAUNCH_INLINE static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Average : Add {};
struct Multiply {
  template <typename T>
  DLAUNCH_INLINE static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
// `|` rather than `||` leaves no branch in the loop.
template <typename T>
DLAUNCH_INLINE bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return value != value;  // NOLINT(misc-redundant-expression)
  return false;
}
struct Minimum {
  template <typename T>
  DLAUNCH_INLINE static T apply(T a, T b) {
    return static_cast<int>(b < a) | static_cast<int>(is_nan(b)) ? b : a;
  }
};
struct Maximum {
  template <typename T>
  DLAUNCH_INLINE static T apply(T a, T b) {
    return static_cast<int>(b > a) | static_cast<int>(is_nan(b)) ? b : a;
  }
};

struct BitAnd {
  template <typename T>
  DLAUNCH_INLINE static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <typename T>
  DLAUNCH_INLINE static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <typename T>
  DLAUNCH_INLINE static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// The type in which T is computed.
template <typename Op, typename T>
using WideOf = ReducedIn<std::is_same_v<Op, Average> ? ReduceOp::kAvg : ReduceOp::kSum, T>;

// --- loops. `into` may be one of the operands: every element is read before it is written.

template <typename Op, typename Into, typename First, typename T>
DLAUNCH_INLINE void combine(Into* into, const First* first, const T* const* rest, std::size_t more,
                            std::size_t begin, std::size_t count) {
  using Wide = WideOf<Op, T>;
  const T* b = more > 0 ? rest[0] + begin : nullptr;
  const T* c = more > 1 ? rest[1] + begin : nullptr;
  const T* d = more > 2 ? rest[2] + begin : nullptr;
  const auto x = [](auto value) __attribute__((always_inline)) {
    return load<Wide>(value);
  };
  switch (more) {
    case 0:
#pragma GCC ivdep
      for (std::size_t i = 0; i < count; ++i) into[i] = store<Into>(x(first[i]));
      return;
    case 1:
#pragma GCC ivdep
      for (std::size_t i = 0; i < count; ++i) {
        into[i] = store<Into>(Op::apply(x(first[i]), x(b[i])));
      }
      return;
    case 2:
#pragma GCC ivdep
      for (std::size_t i = 0; i < count; ++i) {
        into[i] = store<Into>(Op::apply(Op::apply(x(first[i]), x(b[i])), x(c[i])));
      }
      return;
    default:
#pragma GCC ivdep
      for (std::size_t i = 0; i < count; ++i) {
        into[i] =
            store<Into>(Op::apply(Op::apply(Op::apply(x(first[i]), x(b[i])), x(c[i])), x(d[i])));
      }
  }
}

template <typename T, typename Wide>
DLAUNCH_INLINE void finish(T* into, const Wide* from, std::size_t count, int divisor) {
  if (divisor == 1) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) into[i] = store<T>(from[i]);
    return;
  }
  const auto by = static_cast<Wide>(divisor);
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) into[i] = store<T>(from[i] / by);
}

template <typename Op, typename T>
DLAUNCH_INLINE void reduce(T* into, const T* const* operands, std::size_t number, std::size_t count,
                           int divisor) {
  using Wide = WideOf<Op, T>;
  constexpr std::size_t kMostAtOnce = 4;
  if (number <= kMostAtOnce && divisor == 1) {
    return combine<Op>(into, operands[0], operands + 1, number - 1, 0, count);
  }
  // A block at a time, accumulated in the first-level cache.
  constexpr std::size_t kBlock = 4096 / sizeof(Wide);
  Wide block[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    std::size_t done = std::min(number, kMostAtOnce);
    combine<Op>(block, operands[0] + begin, operands + 1, done - 1, begin, length);
    while (done < number) {
      const std::size_t more = std::min(number - done, kMostAtOnce - 1);
      combine<Op>(block, block, operands + done, more, begin, length);
      done += more;
    }
    finish(into + begin, block, length, divisor);
  }
}

using ReduceFunction = void (*)(void*, const void* const*, std::size_t, std::size_t, int);

// One function per operation and type, each compiled for several CPUs.
// NOLINTBEGIN(bugprone-macro-parentheses): types cannot be put in parentheses
#define DLAUNCH_REDUCE(Op, T, name)                                                               \
  DLAUNCH_MULTIVERSION void name(void* into, const void* const* operands, std::size_t number,     \
                                 std::size_t count, int divisor) {                                \
    reduce<Op>(static_cast<T*>(into), reinterpret_cast<const T* const*>(operands), number, count, \
               divisor);                                                                          \
  }
#define DLAUNCH_REDUCE_INTEGERS(Op, prefix)       \
  DLAUNCH_REDUCE(Op, std::int32_t, prefix##_i32)  \
  DLAUNCH_REDUCE(Op, std::int64_t, prefix##_i64)  \
  DLAUNCH_REDUCE(Op, std::uint8_t, prefix##_u8)   \
  DLAUNCH_REDUCE(Op, std::int8_t, prefix##_i8)    \
  DLAUNCH_REDUCE(Op, std::uint32_t, prefix##_u32) \
  DLAUNCH_REDUCE(Op, std::uint64_t, prefix##_u64)
#define DLAUNCH_INTEGERS(prefix) \
  prefix##_i32, prefix##_i64, prefix##_u8, prefix##_i8, prefix##_u32, prefix##_u64
#define DLAUNCH_REDUCE_ALL_TYPES(Op, prefix)                                                 \
  DLAUNCH_REDUCE(Op, Float16, prefix##_f16)                                                  \
  DLAUNCH_REDUCE(Op, BFloat16, prefix##_bf16)                                                \
  DLAUNCH_REDUCE(Op, float, prefix##_f32)                                                    \
  DLAUNCH_REDUCE(Op, double, prefix##_f64)                                                   \
  DLAUNCH_REDUCE_INTEGERS(Op, prefix)                                                        \
  constexpr ReduceFunction prefix##_of_dtype[] = {prefix##_f16, prefix##_bf16, prefix##_f32, \
                                                  prefix##_f64, DLAUNCH_INTEGERS(prefix)};
#define DLAUNCH_REDUCE_BITS(Op, prefix)                                               \
  DLAUNCH_REDUCE_INTEGERS(Op, prefix)                                                 \
  constexpr ReduceFunction prefix##_of_dtype[] = {nullptr, nullptr, nullptr, nullptr, \
                                                  DLAUNCH_INTEGERS(prefix)};

DLAUNCH_REDUCE_ALL_TYPES(Add, sum)
DLAUNCH_REDUCE_ALL_TYPES(Average, average)
DLAUNCH_REDUCE_ALL_TYPES(Multiply, product)
DLAUNCH_REDUCE_ALL_TYPES(Minimum, minimum)
DLAUNCH_REDUCE_ALL_TYPES(Maximum, maximum)
DLAUNCH_REDUCE_BITS(BitAnd, bit_and)
DLAUNCH_REDUCE_BITS(BitOr, bit_or)
DLAUNCH_REDUCE_BITS(BitXor, bit_xor)

// Halves to and from float.
#define DLAUNCH_CONVERT(T, name)                                                           \
  DLAUNCH_MULTIVERSION void widen_##name(const T* from, float* into, std::size_t count) {  \
    for (std::size_t i = 0; i < count; ++i) into[i] = load<float>(from[i]);                \
  }                                                                                        \
  DLAUNCH_MULTIVERSION void narrow_##name(const float* from, T* into, std::size_t count) { \
    for (std::size_t i = 0; i < count; ++i) into[i] = store<T>(from[i]);                   \
  }
DLAUNCH_CONVERT(Float16, f16)
DLAUNCH_CONVERT(BFloat16, bf16)
// NOLINTEND(bugprone-macro-parentheses)

ReduceFunction function_of(ReduceOp op, DType dtype) {
  const auto type = static_cast<std::size_t>(dtype);  // the tables are in the order of DType
  switch (op) {
    case ReduceOp::kSum:
      return sum_of_dtype[type];
    case ReduceOp::kAvg:
      return average_of_dtype[type];
    case ReduceOp::kProd:
      return product_of_dtype[type];
    case ReduceOp::kMin:
      return minimum_of_dtype[type];
    case ReduceOp::kMax:
      return maximum_of_dtype[type];
    case ReduceOp::kBand:
      return bit_and_of_dtype[type];
    case ReduceOp::kBor:
      return bit_or_of_dtype[type];
    case ReduceOp::kBxor:
      break;
  }
  return bit_xor_of_dtype[type];
}

}  // namespace

void reduce_operands(ReduceOp op, DType dtype, void* into, std::span<const void* const> operands,
                     std::size_t count, int divisor) {
  if (count == 0) return;
  const int by = op == ReduceOp::kAvg ? divisor : 1;
  function_of(op, dtype)(into, operands.data(), operands.size(), count, by);
}

void accumulate(ReduceOp op, DType dtype, void* accumulator, const void* operand, std::size_t count,
                AccumulatorSide side) {
  const void* const left[] = {accumulator, operand};
  const void* const right[] = {operand, accumulator};
  reduce_operands(op, dtype, accumulator, side == AccumulatorSide::kLeft ? left : right, count);
}

void divide(DType dtype, void* values, std::size_t count, int divisor) {
  const void* const operands[] = {values};
  reduce_operands(ReduceOp::kAvg, dtype, values, operands, count, divisor);
}

void widen(DType dtype, const void* from, std::int64_t* into, std::size_t count) {
  visit_dtype(dtype, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      std::copy_n(static_cast<const T*>(from), count, into);
    }
  });
}

void narrow(DType dtype, const std::int64_t* from, void* into, std::size_t count) {
  visit_dtype(dtype, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      auto* const values = static_cast<T*>(into);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(from[i]);
    }
  });
}

void widen(DType dtype, const void* from, float* into, std::size_t count) {
  if (dtype == DType::kF16) return widen_f16(static_cast<const Float16*>(from), into, count);
  widen_bf16(static_cast<const BFloat16*>(from), into, count);
}

void narrow(DType dtype, const float* from, void* into, std::size_t count) {
  if (dtype == DType::kF16) return narrow_f16(from, static_cast<Float16*>(into), count);
  narrow_bf16(from, static_cast<BFloat16*>(into), count);
}

}  // namespace dlaunch
