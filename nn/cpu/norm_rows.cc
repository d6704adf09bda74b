#include "nn/cpu/norm_rows.h"

#include "nn/cpu/activation.h"
#include "runtime/base/multiversion.h"

// The loops over channels are the ones that become vector instructions; several rows are taken at
// once so that coefficients and sums are loaded once for all of them.

namespace dlaunch::nn::cpu {

template <typename T>
DLAUNCH_MULTIVERSION void add_rows(const T* __restrict x, std::int64_t rows, std::int64_t channels,
                                   const float* __restrict shift, float* __restrict first,
                                   float* __restrict second) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * channels) {
    const T* x1 = x + channels;
    const T* x2 = x1 + channels;
    const T* x3 = x2 + channels;
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float d0 = load(x[c]) - shift[c];
      const float d1 = load(x1[c]) - shift[c];
      const float d2 = load(x2[c]) - shift[c];
      const float d3 = load(x3[c]) - shift[c];
      first[c] += (d0 + d1) + (d2 + d3);
      second[c] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    }
  }
  for (; row < rows; ++row, x += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float d = load(x[c]) - shift[c];
      first[c] += d;
      second[c] += d * d;
    }
  }
}

template <typename T>
DLAUNCH_MULTIVERSION void add_gradient_rows(const T* __restrict dy, const T* __restrict x,
                                            std::int64_t rows, std::int64_t channels,
                                            const float* __restrict shift, float* __restrict first,
                                            float* __restrict second) {
  std::int64_t row = 0;
  for (; row + 2 <= rows; row += 2, x += 2 * channels, dy += 2 * channels) {
    const T* x1 = x + channels;
    const T* dy1 = dy + channels;
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float g0 = load(dy[c]);
      const float g1 = load(dy1[c]);
      first[c] += g0 + g1;
      second[c] += g0 * (load(x[c]) - shift[c]) + g1 * (load(x1[c]) - shift[c]);
    }
  }
  for (; row < rows; ++row, x += channels, dy += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      first[c] += load(dy[c]);
      second[c] += load(dy[c]) * (load(x[c]) - shift[c]);
    }
  }
}

template <typename T>
DLAUNCH_MULTIVERSION void add_masked_gradient_rows(const T* dy, const T* __restrict x,
                                                   const T* __restrict y, std::int64_t rows,
                                                   std::int64_t channels,
                                                   const float* __restrict shift,
                                                   float* __restrict first,
                                                   float* __restrict second, T* masked) {
  for (std::int64_t row = 0; row < rows; ++row) {
    // Every element depends on itself alone, so masked may be dy.
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float g = load(y[c]) > 0.0F ? load(dy[c]) : 0.0F;
      first[c] += g;
      second[c] += g * (load(x[c]) - shift[c]);
      store(masked[c], g);
    }
    dy += channels;
    x += channels;
    y += channels;
    masked += channels;
  }
}

template <typename T>
DLAUNCH_MULTIVERSION void scale_rows(const T* x, std::int64_t rows, std::int64_t channels,
                                     const float* shift, const float* scale, const float* offset,
                                     float floor, T* y) {
  for (std::int64_t row = 0; row < rows; ++row, x += channels, y += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float value = (load(x[c]) - shift[c]) * scale[c] + offset[c];
      store(y[c], value < floor ? floor : value);
    }
  }
}

template <typename T>
DLAUNCH_MULTIVERSION void scale_and_add_rows(const T* x, const T* residual, std::int64_t rows,
                                             std::int64_t channels, const float* shift,
                                             const float* scale, const float* offset, float floor,
                                             T* y) {
  for (std::int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float value = (load(x[c]) - shift[c]) * scale[c] + offset[c] + load(residual[c]);
      store(y[c], value < floor ? floor : value);
    }
    x += channels;
    residual += channels;
    y += channels;
  }
}

template <typename T>
DLAUNCH_MULTIVERSION void combine_rows(const T* dy, const T* x, std::int64_t rows,
                                       std::int64_t channels, const float* shift,
                                       const float* scale, const float* slope, const float* offset,
                                       T* dx) {
  for (std::int64_t row = 0; row < rows; ++row, dy += channels, x += channels, dx += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      store(dx[c], load(dy[c]) * scale[c] + (load(x[c]) - shift[c]) * slope[c] + offset[c]);
    }
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define INSTANTIATE_FOR(T)                                                                         \
  template void add_rows(const T*, std::int64_t, std::int64_t, const float*, float*, float*);      \
  template void add_gradient_rows(const T*, const T*, std::int64_t, std::int64_t, const float*,    \
                                  float*, float*);                                                 \
  template void add_masked_gradient_rows(const T*, const T*, const T*, std::int64_t, std::int64_t, \
                                         const float*, float*, float*, T*);                        \
  template void scale_rows(const T*, std::int64_t, std::int64_t, const float*, const float*,       \
                           const float*, float, T*);                                               \
  template void scale_and_add_rows(const T*, const T*, std::int64_t, std::int64_t, const float*,   \
                                   const float*, const float*, float, T*);                         \
  template void combine_rows(const T*, const T*, std::int64_t, std::int64_t, const float*,         \
                             const float*, const float*, const float*, T*);
// NOLINTEND(bugprone-macro-parentheses)

INSTANTIATE_FOR(float)
INSTANTIATE_FOR(BFloat16)

}  // namespace dlaunch::nn::cpu
