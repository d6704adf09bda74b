// The inner loops of batch norm on CPU: one pass over rows of `channels` floats, channels
// innermost, with per-channel coefficients. Each is compiled for several instruction sets and
// chosen at load time. No threads, no allocation; pointers do not overlap, except that an output
// may be an input.
#pragma once

#include <cstdint>

namespace dlaunch::nn::cpu {

/// first[c] += sum of d, second[c] += sum of d^2, with d = x - shift.
void add_rows(const float* x, std::int64_t rows, std::int64_t channels, const float* shift,
              float* first, float* second);

/// first[c] += sum of dy, second[c] += sum of dy (x - shift).
void add_gradient_rows(const float* dy, const float* x, std::int64_t rows, std::int64_t channels,
                       const float* shift, float* first, float* second);

/// y = (x - shift) scale + offset.
void scale_rows(const float* x, std::int64_t rows, std::int64_t channels, const float* shift,
                const float* scale, const float* offset, float* y);

/// dx = dy scale + (x - shift) slope + offset.
void combine_rows(const float* dy, const float* x, std::int64_t rows, std::int64_t channels,
                  const float* shift, const float* scale, const float* slope, const float* offset,
                  float* dx);

}  // namespace dlaunch::nn::cpu
