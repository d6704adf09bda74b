// The passes over rows of batch normalisation that write them (nn/core/norm_kernels.h).
#pragma once

#include <algorithm>

#include "nn/core/norm_kernels.h"
#include "nn/cuda/device.h"

namespace dlaunch::nn::cuda {

void normalise(Device& device, NormExtent extent, ConstArrayRef x, const NormFunction& function,
               ConstArrayRef residual, ArrayRef y);

void normalise_backward(Device& device, NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                        const NormFunction& function, const double* sums, ArrayRef dx);

/// What pooling makes, a row for each window.
inline NormExtent extent_behind(const PoolGeometry& pool, std::int64_t parts) {
  const std::int64_t windows = pool.out_height() * pool.out_width();
  return {.rows = pool.n * windows,
          .channels = pool.channels,
          .parts = {.count = parts, .sample_rows = std::max<std::int64_t>(windows, 1)}};
}

/// PooledNormKernels::backward_data. Windows of 2x2 or 3x3, beside each other, no padding.
void pooled_normalise_backward(Device& device, const PoolGeometry& pool, std::int64_t parts,
                               ConstArrayRef dy, ConstArrayRef x, const std::uint8_t* argmax,
                               const NormFunction& function, const double* sums, ArrayRef dinput);

}  // namespace dlaunch::nn::cuda
