#include "nn/cpu/norm_rows.h"

#include "nn/cpu/activation.h"
#include "nn/cpu/activation_functions.h"
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

template <typename Activation, typename T>
DLAUNCH_MULTIVERSION void add_gradient_rows(const Activation& activation, const T* __restrict dy,
                                            const T* __restrict x, std::int64_t rows,
                                            std::int64_t channels, const NormaliseRows& normalise,
                                            float* __restrict first, float* __restrict second) {
  const Activation of = activation;  // no pointer can reach it
  const float* __restrict shift = normalise.shift;
  const float* __restrict scale = normalise.scale;
  const float* __restrict offset = normalise.offset;
  std::int64_t row = 0;
  for (; row + 2 <= rows; row += 2, x += 2 * channels, dy += 2 * channels) {
    const T* x1 = x + channels;
    const T* dy1 = dy + channels;
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float d0 = load(x[c]) - shift[c];
      const float d1 = load(x1[c]) - shift[c];
      const float g0 = of.gradient(d0 * scale[c] + offset[c], load(dy[c]));
      const float g1 = of.gradient(d1 * scale[c] + offset[c], load(dy1[c]));
      first[c] += g0 + g1;
      second[c] += g0 * d0 + g1 * d1;
    }
  }
  for (; row < rows; ++row, x += channels, dy += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float d = load(x[c]) - shift[c];
      const float g = of.gradient(d * scale[c] + offset[c], load(dy[c]));
      first[c] += g;
      second[c] += g * d;
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

template <typename Activation, typename T>
DLAUNCH_MULTIVERSION void normalise_rows(const Activation& activation, const T* x,
                                         std::int64_t rows, std::int64_t channels,
                                         const NormaliseRows& normalise, T* y) {
  const Activation of = activation;  // no pointer can reach it
  const float* shift = normalise.shift;
  const float* scale = normalise.scale;
  const float* offset = normalise.offset;
  for (std::int64_t row = 0; row < rows; ++row, x += channels, y += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c)
      store(y[c], of.value((load(x[c]) - shift[c]) * scale[c] + offset[c]));
  }
}

template <typename T>
DLAUNCH_MULTIVERSION void normalise_and_add_rows(const T* x, const T* residual, std::int64_t rows,
                                                 std::int64_t channels,
                                                 const NormaliseRows& normalise, float floor,
                                                 T* y) {
  const float* shift = normalise.shift;
  const float* scale = normalise.scale;
  const float* offset = normalise.offset;
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

template <typename Activation, typename T>
DLAUNCH_MULTIVERSION void combine_rows(const Activation& activation, const T* dy, const T* x,
                                       std::int64_t rows, std::int64_t channels,
                                       const NormaliseRows& normalise, const CombineRows& combine,
                                       T* dx) {
  const Activation of = activation;  // no pointer can reach it
  const float* shift = normalise.shift;
  const float* scale = normalise.scale;
  const float* offset = normalise.offset;
  const float* dz_scale = combine.scale;
  const float* slope = combine.slope;
  const float* rest = combine.offset;
  for (std::int64_t row = 0; row < rows; ++row, dy += channels, x += channels, dx += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float d = load(x[c]) - shift[c];
      const float dz = of.gradient(d * scale[c] + offset[c], load(dy[c]));
      store(dx[c], dz * dz_scale[c] + d * slope[c] + rest[c]);
    }
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): types
#define INSTANTIATE_WITH(Activation, T)                                                         \
  template void add_gradient_rows(const Activation&, const T*, const T*, std::int64_t,          \
                                  std::int64_t, const NormaliseRows&, float*, float*);          \
  template void normalise_rows(const Activation&, const T*, std::int64_t, std::int64_t,         \
                               const NormaliseRows&, T*);                                       \
  template void combine_rows(const Activation&, const T*, const T*, std::int64_t, std::int64_t, \
                             const NormaliseRows&, const CombineRows&, T*);
#define INSTANTIATE_FOR(T)                                                                         \
  template void add_rows(const T*, std::int64_t, std::int64_t, const float*, float*, float*);      \
  template void add_masked_gradient_rows(const T*, const T*, const T*, std::int64_t, std::int64_t, \
                                         const float*, float*, float*, T*);                        \
  template void normalise_and_add_rows(const T*, const T*, std::int64_t, std::int64_t,             \
                                       const NormaliseRows&, float, T*);                           \
  INSTANTIATE_WITH(NoActivation, T)                                                                \
  INSTANTIATE_WITH(Relu, T)                                                                        \
  INSTANTIATE_WITH(Gelu, T)                                                                        \
  INSTANTIATE_WITH(Silu, T)                                                                        \
  INSTANTIATE_WITH(Celu, T)
// NOLINTEND(bugprone-macro-parentheses)

INSTANTIATE_FOR(float)
INSTANTIATE_FOR(BFloat16)

}  // namespace dlaunch::nn::cpu
