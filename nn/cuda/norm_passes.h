// The passes of batch normalisation over a batch (nn/core/norm_kernels.h), in files by what they
// make.
#pragma once

#include <algorithm>

#include "nn/core/norm_kernels.h"
#include "nn/cuda/device.h"

namespace dlaunch::nn::cuda {

/// What pooling makes, a row for each window.
inline NormExtent extent_behind(const PoolGeometry& pool, std::int64_t parts) {
  const std::int64_t windows = pool.out_height() * pool.out_width();
  return {.rows = pool.n * windows,
          .channels = pool.channels,
          .parts = {.count = parts, .sample_rows = std::max<std::int64_t>(windows, 1)}};
}

// norm_statistics.cu. Pooling is that of windows of 2x2 or 3x3, beside each other, without padding.
void batch_statistics(Device& device, NormExtent extent, ConstArrayRef x,
                      const StatisticsFinish* finish, double* statistics);
void pool_and_sum(Device& device, const PoolGeometry& pool, std::int64_t parts, ConstArrayRef input,
                  ArrayRef x, std::uint8_t* argmax, const StatisticsFinish* finish,
                  double* statistics);
void finish_statistics(Device& device, std::int64_t parts, std::int64_t channels,
                       const StatisticsFinish& finish, double* statistics);
void statistics_from_running(Device& device, std::int64_t channels, double eps,
                             const float* running_mean, const float* running_variance,
                             double* statistics);

// norm_rows.cu
void normalise(Device& device, NormExtent extent, ConstArrayRef x, const NormFunction& function,
               ConstArrayRef residual, ArrayRef y);
void normalise_backward(Device& device, NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                        const NormFunction& function, const double* sums, ArrayRef dx);
void pooled_normalise_backward(Device& device, const PoolGeometry& pool, std::int64_t parts,
                               ConstArrayRef dy, ConstArrayRef x, const std::uint8_t* argmax,
                               const NormFunction& function, const double* sums, ArrayRef dinput);

// norm_gradient_sums.cu
void gradient_sums(Device& device, NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                   const NormFunction& function, double* sums, AffineGradients gradients);
void masked_gradient_sums(Device& device, NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                          ConstArrayRef y, const double* statistics, double* sums,
                          AffineGradients gradients, ArrayRef masked);

}  // namespace dlaunch::nn::cuda
