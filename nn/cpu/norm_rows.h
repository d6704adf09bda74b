// The inner loops of batch norm on CPU: one pass over rows of `channels` activations (float or
// BFloat16), channels innermost, with per-channel coefficients in float. Each is compiled for
// several instruction sets and chosen at load time. No threads, no allocation; pointers do not
// overlap, except that an output may be an input.
#pragma once

#include <cstdint>

namespace dlaunch::nn::cpu {

/// first[c] += sum of d, second[c] += sum of d^2, with d = x - shift.
template <typename T>
void add_rows(const T* x, std::int64_t rows, std::int64_t channels, const float* shift,
              float* first, float* second);

/// Of each channel: z = (x - shift) scale + offset.
struct NormaliseRows {
  const float* shift;
  const float* scale;
  const float* offset;
};

/// first[c] += sum of dz, second[c] += sum of dz (x - shift), with dz the gradient of z behind an
/// activation of activation_functions.h.
template <typename Activation, typename T>
void add_gradient_rows(const Activation& activation, const T* dy, const T* x, std::int64_t rows,
                       std::int64_t channels, const NormaliseRows& normalise, float* first,
                       float* second);

/// The same of masked = (y > 0 ? dy : 0), which is stored too; it may be dy.
template <typename T>
void add_masked_gradient_rows(const T* dy, const T* x, const T* y, std::int64_t rows,
                              std::int64_t channels, const float* shift, float* first,
                              float* second, T* masked);

/// y = activation(z).
template <typename Activation, typename T>
void normalise_rows(const Activation& activation, const T* x, std::int64_t rows,
                    std::int64_t channels, const NormaliseRows& normalise, T* y);

/// y = max(floor, z + residual); floor is 0 or minus infinity, a NaN stays one.
template <typename T>
void normalise_and_add_rows(const T* x, const T* residual, std::int64_t rows, std::int64_t channels,
                            const NormaliseRows& normalise, float floor, T* y);

/// Of each channel: dx = dz scale + (x - shift) slope + offset; shift is that of NormaliseRows.
struct CombineRows {
  const float* scale;
  const float* slope;
  const float* offset;
};

/// With dz as in add_gradient_rows.
template <typename Activation, typename T>
void combine_rows(const Activation& activation, const T* dy, const T* x, std::int64_t rows,
                  std::int64_t channels, const NormaliseRows& normalise, const CombineRows& combine,
                  T* dx);

}  // namespace dlaunch::nn::cpu
