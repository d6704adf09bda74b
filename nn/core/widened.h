// What a device's library does not compute in 16 bits, computed in f32 on converted copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nn/core/backend.h"
#include "nn/core/caching_allocator.h"

namespace dlaunch::nn {

/// 16-bit values as f32 in memory of their own. `Convert` is a function of a number of values, what
/// they are converted from and to.
template <typename Convert>
class Widened {
 public:
  /// Not initialised.
  Widened(CachingAllocator& memory, Convert convert, std::int64_t count)
      : convert_(convert),
        count_(count),
        values_(memory, static_cast<std::size_t>(count) * sizeof(float)) {}
  Widened(CachingAllocator& memory, Convert convert, std::int64_t count, ConstArrayRef from)
      : Widened(memory, convert, count) {
    convert(count, from, array());
  }

  ArrayRef array() const { return {values_.get(), DType::kF32}; }
  void narrow(ArrayRef to) const { convert_(count_, array(), to); }

 private:
  Convert convert_;
  std::int64_t count_;
  ScratchMemory values_;
};

/// The product by `run`, which takes it in f32.
template <typename Convert, typename Run>
void matmul_widened(CachingAllocator& memory, Convert convert, const MatmulArguments& arg,
                    const Run& run) {
  const Widened a(memory, convert, arg.count * arg.m * arg.k, arg.a);
  const Widened b(memory, convert, arg.count * arg.k * arg.n, arg.b);
  MatmulArguments widened = arg;
  widened.a = a.array();
  widened.b = b.array();
  if (arg.d.dtype == DType::kF32) return run(widened);
  const std::int64_t count = arg.count * arg.m * arg.n;
  const Widened d(memory, convert, count);
  if (arg.beta != 0) convert(count, arg.c, d.array());
  widened.c = d.array();
  widened.d = d.array();
  run(widened);
  d.narrow(arg.d);
}

}  // namespace dlaunch::nn
