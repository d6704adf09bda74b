#include "nn/cpu/norm_rows.h"

#include "runtime/base/multiversion.h"

// The loops over channels are the ones that become vector instructions; several rows are taken at
// once so that coefficients and sums are loaded once for all of them.

namespace dlaunch::nn::cpu {

DLAUNCH_MULTIVERSION void add_rows(const float* __restrict x, std::int64_t rows,
                                   std::int64_t channels, const float* __restrict shift,
                                   float* __restrict first, float* __restrict second) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * channels) {
    const float* x1 = x + channels;
    const float* x2 = x1 + channels;
    const float* x3 = x2 + channels;
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float d0 = x[c] - shift[c];
      const float d1 = x1[c] - shift[c];
      const float d2 = x2[c] - shift[c];
      const float d3 = x3[c] - shift[c];
      first[c] += (d0 + d1) + (d2 + d3);
      second[c] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    }
  }
  for (; row < rows; ++row, x += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float d = x[c] - shift[c];
      first[c] += d;
      second[c] += d * d;
    }
  }
}

DLAUNCH_MULTIVERSION void add_gradient_rows(const float* __restrict dy, const float* __restrict x,
                                            std::int64_t rows, std::int64_t channels,
                                            const float* __restrict shift, float* __restrict first,
                                            float* __restrict second) {
  std::int64_t row = 0;
  for (; row + 2 <= rows; row += 2, x += 2 * channels, dy += 2 * channels) {
    const float* x1 = x + channels;
    const float* dy1 = dy + channels;
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      first[c] += dy[c] + dy1[c];
      second[c] += dy[c] * (x[c] - shift[c]) + dy1[c] * (x1[c] - shift[c]);
    }
  }
  for (; row < rows; ++row, x += channels, dy += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      first[c] += dy[c];
      second[c] += dy[c] * (x[c] - shift[c]);
    }
  }
}

DLAUNCH_MULTIVERSION void scale_rows(const float* x, std::int64_t rows, std::int64_t channels,
                                     const float* shift, const float* scale, const float* offset,
                                     float* y) {
  for (std::int64_t row = 0; row < rows; ++row, x += channels, y += channels) {
    // Every element depends on itself alone, so y may be x.
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) y[c] = (x[c] - shift[c]) * scale[c] + offset[c];
  }
}

DLAUNCH_MULTIVERSION void combine_rows(const float* dy, const float* x, std::int64_t rows,
                                       std::int64_t channels, const float* shift,
                                       const float* scale, const float* slope, const float* offset,
                                       float* dx) {
  for (std::int64_t row = 0; row < rows; ++row, dy += channels, x += channels, dx += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      dx[c] = dy[c] * scale[c] + (x[c] - shift[c]) * slope[c] + offset[c];
    }
  }
}

}  // namespace dlaunch::nn::cpu
