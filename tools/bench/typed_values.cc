#include "tools/bench/typed_values.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "runtime/base/dtype.h"
#include "tools/bench/measure/values.h"

namespace dlaunch::bench {
namespace {

template <typename T>
using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

template <typename T>
T value_of(std::uint32_t stream, std::size_t element) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(mixed_bits(stream, static_cast<std::uint32_t>(element)) % 100 + 1);
  } else {
    return static_cast<T>(real_value(stream, element));
  }
}

template <typename T>
Wide<T> widened(T value) {
  if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>) {
    return value;
  } else {
    return static_cast<double>(static_cast<float>(value));
  }
}

double combined(double a, double b, ReduceOp op) {
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  return op == ReduceOp::kProd ? a * b : a + b;
}

std::int64_t combined(std::int64_t a, std::int64_t b, ReduceOp op) {
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  if (op == ReduceOp::kBand) return a & b;
  if (op == ReduceOp::kBor) return a | b;
  if (op == ReduceOp::kBxor) return a ^ b;
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  return static_cast<std::int64_t>(op == ReduceOp::kProd ? x * y : x + y);
}

template <typename T>
double relative_error(T got, Wide<T> expected) {
  if constexpr (std::is_integral_v<T>) {
    return got == static_cast<T>(expected) ? 0 : 1;
  } else {
    const double error = std::abs(widened(got) - expected) / std::abs(expected);
    return std::isfinite(error) ? error : INFINITY;
  }
}

template <typename T>
double worst_error(const T* result, std::size_t count, const Origin& origin,
                   const std::vector<std::uint32_t>& streams) {
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t element = origin.first_element + i;
    Wide<T> expected = widened(value_of<T>(streams[0], element));
    for (std::size_t r = 1; r < streams.size(); ++r) {
      expected = combined(expected, widened(value_of<T>(streams[r], element)), origin.op);
    }
    if (origin.op == ReduceOp::kAvg) expected /= static_cast<Wide<T>>(streams.size());
    worst = std::max(worst, relative_error(result[i], expected));
  }
  return worst;
}

}  // namespace

void fill(Buffer buffer, int rank, std::uint64_t repetition) {
  if (buffer.dtype == DType::kF32) {
    fill_floats(static_cast<float*>(buffer.data), buffer.count, rank, repetition);
    return;
  }
  const std::uint32_t stream = stream_of(rank, repetition);
  visit_dtype(buffer.dtype, [&]<typename T>() {
    auto* data = static_cast<T*>(buffer.data);
    for (std::size_t i = 0; i < buffer.count; ++i) data[i] = value_of<T>(stream, i);
  });
}

double error_of(ConstBuffer result, const Origin& origin, std::uint64_t repetition) {
  std::vector<std::uint32_t> streams;
  for (const int rank : origin.ranks) streams.push_back(stream_of(rank, repetition));
  return visit_dtype(result.dtype, [&]<typename T>() {
    return worst_error(static_cast<const T*>(result.data), result.count, origin, streams);
  });
}

double tolerance_of(DType dtype, int ranks) {
  const double operations = std::max(1, ranks);
  switch (dtype) {
    case DType::kF16:
      return operations * 0x1p-11;  // half the distance of neighbours, relative, for each rounding
    case DType::kBF16:
      return operations * 0x1p-8;
    case DType::kF32:
      return operations * 0x1p-24;
    case DType::kF64:
      return operations * 0x1p-52;  // the reference is rounded too
    default:
      return 0;
  }
}

}  // namespace dlaunch::bench
