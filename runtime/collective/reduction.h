// Elementwise arithmetic of reductions, for every element type.
//
// f16 and bf16 are computed in float and rounded once per call. Sums and products of integers wrap
// around; averages of integers are computed in 64 bits and truncated toward zero. Minimum and
// maximum hand on a NaN from either side. Operands are taken in the order given, so that two ranks
// that combine the same vectors in the same order get the same bits (up to the payload of a NaN
// that came out of an addition of two).
//
// Vectorised for the CPU that runs it. Pure functions; any thread may call them. Memory need not be
// aligned beyond its element type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "runtime/base/dtype.h"
#include "runtime/collective/types.h"

namespace dlaunch {

/// into[i] = (operands[0][i] (op) operands[1][i]) (op) ..., then for kAvg divided by `divisor`; one
/// pass, one rounding. One of reductions_of(dtype). `into` may be one of the operands and overlaps
/// no other memory. With kAvg and a divisor of 1 the result is the sum: a partial one on its way to
/// others.
void reduce_operands(ReduceOp op, DType dtype, void* into, std::span<const void* const> operands,
                     std::size_t count, int divisor = 1);

/// Which operand the accumulator is.
enum class AccumulatorSide : std::uint8_t { kLeft, kRight };

/// accumulator[i] = accumulator[i] (op) operand[i], or the other way round if the accumulator is on
/// the right. kAvg adds.
void accumulate(ReduceOp op, DType dtype, void* accumulator, const void* operand, std::size_t count,
                AccumulatorSide side = AccumulatorSide::kLeft);

/// values[i] /= divisor: floating types round, integers truncate toward zero.
void divide(DType dtype, void* values, std::size_t count, int divisor);

/// The type in which elements of `dtype` are combined: f16 and bf16 in f32, averages of integers in
/// 64 bits.
constexpr DType reduced_in(ReduceOp op, DType dtype) {
  if (is_floating(dtype)) return size_of(dtype) < 4 ? DType::kF32 : dtype;
  return op == ReduceOp::kAvg && size_of(dtype) < 8 ? DType::kI64 : dtype;
}

/// The same as C++'s types.
template <ReduceOp kOp, typename T>
using ReducedIn =
    std::conditional_t<reduced_in(kOp, dtype_of<T>) == dtype_of<T>, T,
                       std::conditional_t<is_floating(dtype_of<T>), float, std::int64_t>>;

/// into[i] = from[i], integers of any type.
void widen(DType dtype, const void* from, std::int64_t* into, std::size_t count);

/// The inverse; the values fit, being averages of values of that type.
void narrow(DType dtype, const std::int64_t* from, void* into, std::size_t count);

/// The same for f16 and bf16 and float, in which their sums are computed. Rounds to nearest even.
void widen(DType dtype, const void* from, float* into, std::size_t count);
void narrow(DType dtype, const float* from, void* into, std::size_t count);

}  // namespace dlaunch
