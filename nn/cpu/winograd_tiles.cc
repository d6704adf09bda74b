#include "nn/cpu/winograd_tiles.h"

#include <cmath>
#include <cstring>

#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu::winograd {
namespace {

#define DLAUNCH_INLINE inline __attribute__((always_inline))

// The compiler does not make vector instructions of loops over so many arrays at once, so these are
// spelled out, in vectors of GCC's that fit whatever the CPU has.
constexpr std::int64_t kLanes = kChannelBlock;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Words = std::uint32_t __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));
using Halves = std::uint16_t __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));

DLAUNCH_INLINE void load(const BFloat16* from, Floats& to) {
  Halves bits;
  std::memcpy(&bits, from, sizeof(bits));
  const Words words = __builtin_convertvector(bits, Words) << 16;
  std::memcpy(&to, &words, sizeof(to));
}

DLAUNCH_INLINE void load(const float* from, Floats& to) {
  std::memcpy(&to, from, sizeof(to));
}

/// Of the caller's, whose NaNs may have any bits: as those of arithmetic are.
DLAUNCH_INLINE void load_given(const float* from, Floats& to) {
  load(from, to);
  to = to == to ? to : Floats{} + NAN;  // NOLINT(misc-redundant-expression): not for NaNs
}

/// Rounds to nearest even. NaNs stay NaNs: those of arithmetic on bf16 have no bits below bf16's
/// that could carry into the sign.
DLAUNCH_INLINE void store(BFloat16* to, const Floats& value) {
  Words words;
  std::memcpy(&words, &value, sizeof(words));
  words = (words + 0x7fffU + ((words >> 16) & 1U)) >> 16;
  const Halves bits = __builtin_convertvector(words, Halves);
  std::memcpy(static_cast<void*>(to), &bits, sizeof(bits));
}

DLAUNCH_INLINE void store_planes(const Floats* points, BFloat16* planes, std::int64_t plane) {
#pragma GCC unroll 16
  for (std::int64_t p = 0; p < kPoints; ++p) store(planes + p * plane, points[p]);
}

/// A row or column of B' d.
DLAUNCH_INLINE void combine_input(const Floats& a, const Floats& b, const Floats& c,
                                  const Floats& d, Floats* out, std::int64_t stride) {
  out[0] = a - c;
  out[stride] = b + c;
  out[2 * stride] = c - b;
  out[3 * stride] = b - d;
}

/// A row or column of A dy.
DLAUNCH_INLINE void combine_gradient(const Floats& a, const Floats& b, Floats* out,
                                     std::int64_t stride) {
  out[0] = a;
  out[stride] = a + b;
  out[2 * stride] = a - b;
  out[3 * stride] = -b;
}

/// A row or column of A' m.
DLAUNCH_INLINE void combine_output(const Floats& a, const Floats& b, const Floats& c,
                                   const Floats& d, Floats* out, std::int64_t stride) {
  out[0] = a + b + c;
  out[stride] = b - c - d;
}

/// A row or column of G g.
DLAUNCH_INLINE void combine_filter(const Floats& a, const Floats& b, const Floats& c, Floats* out,
                                   std::int64_t stride) {
  out[0] = a;
  out[stride] = 0.5F * (a + b + c);
  out[2 * stride] = 0.5F * (a - b + c);
  out[3 * stride] = c;
}

/// A row or column of G' u.
DLAUNCH_INLINE void combine_filter_gradient(const Floats& a, const Floats& b, const Floats& c,
                                            const Floats& d, Floats* out, std::int64_t stride) {
  out[0] = a + 0.5F * (b + c);
  out[stride] = 0.5F * (b - c);
  out[2 * stride] = 0.5F * (b + c) + d;
}

}  // namespace

DLAUNCH_MULTIVERSION void transform_input(const BFloat16* const* pixels, std::int64_t channels,
                                          BFloat16* planes, std::int64_t plane) {
  for (std::int64_t c = 0; c < channels; c += kLanes) {
    Floats columns[kPoints];
    Floats points[kPoints];
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < 4; ++j) {
      Floats d[4];
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < 4; ++i) load(pixels[4 * i + j] + c, d[i]);
      combine_input(d[0], d[1], d[2], d[3], columns + j, 4);
    }
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < 4; ++i) {
      const Floats* row = columns + 4 * i;
      combine_input(row[0], row[1], row[2], row[3], points + 4 * i, 1);
    }
    store_planes(points, planes + c, plane);
  }
}

DLAUNCH_MULTIVERSION void transform_gradient(const BFloat16* const* pixels, std::int64_t channels,
                                             BFloat16* planes, std::int64_t plane) {
  for (std::int64_t c = 0; c < channels; c += kLanes) {
    Floats dy[4];
    Floats columns[8];
    Floats points[kPoints];
#pragma GCC unroll 4
    for (std::int64_t p = 0; p < 4; ++p) load(pixels[p] + c, dy[p]);
    combine_gradient(dy[0], dy[2], columns, 2);
    combine_gradient(dy[1], dy[3], columns + 1, 2);
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < 4; ++i) {
      combine_gradient(columns[2 * i], columns[2 * i + 1], points + 4 * i, 1);
    }
    store_planes(points, planes + c, plane);
  }
}

DLAUNCH_MULTIVERSION void transform_output(const float* planes, std::int64_t plane,
                                           std::int64_t channels, const float* bias_or_null,
                                           BFloat16* const* pixels) {
  for (std::int64_t c = 0; c < channels; c += kLanes) {
    Floats rows[8];
    Floats y[4];
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < 4; ++j) {
      Floats m[4];
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < 4; ++i) load(planes + (4 * i + j) * plane + c, m[i]);
      combine_output(m[0], m[1], m[2], m[3], rows + j, 4);
    }
    Floats bias = {};
    if (bias_or_null != nullptr) load_given(bias_or_null + c, bias);
#pragma GCC unroll 2
    for (std::int64_t i = 0; i < 2; ++i) {
      const Floats* row = rows + 4 * i;
      combine_output(row[0], row[1], row[2], row[3], y + 2 * i, 1);
    }
#pragma GCC unroll 4
    for (std::int64_t p = 0; p < 4; ++p) store(pixels[p] + c, y[p] + bias);
  }
}

DLAUNCH_MULTIVERSION void transform_filter(const float* filter, std::int64_t channels,
                                           BFloat16* planes, std::int64_t plane) {
  for (std::int64_t c = 0; c < channels; c += kLanes) {
    Floats columns[12];
    Floats points[kPoints];
#pragma GCC unroll 3
    for (std::int64_t j = 0; j < 3; ++j) {
      Floats g[3];
#pragma GCC unroll 3
      for (std::int64_t i = 0; i < 3; ++i) load_given(filter + (3 * i + j) * channels + c, g[i]);
      combine_filter(g[0], g[1], g[2], columns + j, 3);
    }
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < 4; ++i) {
      const Floats* row = columns + 3 * i;
      combine_filter(row[0], row[1], row[2], points + 4 * i, 1);
    }
    store_planes(points, planes + c, plane);
  }
}

DLAUNCH_MULTIVERSION void add_filter_gradient(const float* planes, std::int64_t plane,
                                              std::int64_t channels, float* gradient) {
  for (std::int64_t c = 0; c < channels; c += kLanes) {
    Floats rows[12];
    Floats sums[9];
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < 4; ++j) {
      Floats u[4];
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < 4; ++i) load(planes + (4 * i + j) * plane + c, u[i]);
      combine_filter_gradient(u[0], u[1], u[2], u[3], rows + j, 4);
    }
#pragma GCC unroll 3
    for (std::int64_t i = 0; i < 3; ++i) {
      const Floats* row = rows + 4 * i;
      combine_filter_gradient(row[0], row[1], row[2], row[3], sums + 3 * i, 1);
    }
#pragma GCC unroll 9
    for (std::int64_t p = 0; p < 9; ++p) {
      float* to = gradient + p * channels + c;
      Floats sum;
      load(to, sum);
      sum += sums[p];
      std::memcpy(to, &sum, sizeof(sum));
    }
  }
}

}  // namespace dlaunch::nn::cpu::winograd
