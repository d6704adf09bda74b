// Typed memory of collectives: views, which own nothing. It stays in place until the operation is
// done. Reductions refuse it if it is not aligned to its type (kInvalidArgument); others do not.
#pragma once

#include <cstddef>
#include <ranges>
#include <span>
#include <type_traits>

#include "runtime/base/dtype.h"

namespace dlaunch {

/// Contiguous memory of a type that collectives know, which outlives the expression: a named
/// container, or a view. Not a temporary container, whose memory would be gone before an
/// asynchronous operation ends, and with it what an operation has written.
template <typename Range>
concept ElementRange =
    std::ranges::contiguous_range<Range> && std::ranges::borrowed_range<Range> && requires {
  DTypeOf<std::remove_cv_t<std::ranges::range_value_t<Range>>>::value;
};

/// Elements an operation only reads. Made from any contiguous range of a supported type, or from
/// the three parts.
struct ConstBuffer {
  const void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kF32;

  ConstBuffer() = default;
  ConstBuffer(const void* memory, std::size_t elements, DType type)
      : data(memory), count(elements), dtype(type) {}
  template <ElementRange Range>
  ConstBuffer(Range&& range)  // NOLINT: implicit by design
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        dtype(dtype_of<std::remove_cv_t<std::ranges::range_value_t<Range>>>) {}

  std::size_t bytes() const { return count * size_of(dtype); }
};

/// Elements an operation writes (and may read).
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kF32;

  Buffer() = default;
  Buffer(void* memory, std::size_t elements, DType type)
      : data(memory), count(elements), dtype(type) {}
  template <ElementRange Range>
  requires(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>>)
      Buffer(Range&& range)  // NOLINT: implicit by design
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        dtype(dtype_of<std::ranges::range_value_t<Range>>) {}

  operator ConstBuffer() const { return {data, count, dtype}; }  // NOLINT: implicit by design
  std::size_t bytes() const { return count * size_of(dtype); }
};

}  // namespace dlaunch
