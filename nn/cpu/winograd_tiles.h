// The transforms of Winograd's convolution F(2x2, 3x3) (Lavin & Gray, "Fast Algorithms for
// Convolutional Neural Networks", 2015): a 3x3 filter g on a 4x4 patch d of the input gives a 2x2
// patch of the output,
//
//   y = A' [(G g G') . (B' d B)] A      ' transposes, . multiplies element by element
//
// with 16 multiplications instead of 36. B and A only add; G halves. The 16 elements of a
// transformed patch are kept in 16 planes, `plane` elements apart, channels innermost, so that all
// products of one plane are a matrix product.
//
// One tile or filter at a time, all its channels; no threads, no allocation.
#pragma once

#include <cstdint>

#include "runtime/base/half.h"

namespace dlaunch::nn::cpu::winograd {

constexpr int kPoints = 16;                 // of a transformed patch
constexpr std::int64_t kChannelBlock = 16;  // numbers of channels are multiples of it

/// planes = B' d B of the patch whose pixel (i, j) is at pixels[4 i + j].
void transform_input(const BFloat16* const* pixels, std::int64_t channels, BFloat16* planes,
                     std::int64_t plane);

/// planes = A dy A' of the 2x2 patch of the output's gradient whose pixel (i, j) is at
/// pixels[2 i + j].
void transform_gradient(const BFloat16* const* pixels, std::int64_t channels, BFloat16* planes,
                        std::int64_t plane);

/// The 2x2 patch A' m A, plus a bias per channel (may be null). pixels[2 i + j] is where pixel
/// (i, j) goes.
void transform_output(const float* planes, std::int64_t plane, std::int64_t channels,
                      const float* bias_or_null, BFloat16* const* pixels);

/// planes = G g G' of the filter g [3, 3, channels].
void transform_filter(const float* filter, std::int64_t channels, BFloat16* planes,
                      std::int64_t plane);

/// The gradient of a filter from that of its transform: gradient [3, 3, channels] += G' u G.
void add_filter_gradient(const float* planes, std::int64_t plane, std::int64_t channels,
                         float* gradient);

}  // namespace dlaunch::nn::cpu::winograd
