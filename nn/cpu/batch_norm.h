// Batch-norm kernels on CPU, on plain memory.
//
// A batch is `rows` rows of `channels` floats, channels innermost: [N, C] features, or an NHWC
// image batch with rows = N H W. Any number of rows (0 too) and channels (odd ones too). Sums run
// in float over short blocks of rows about a shift near the mean, and in double over blocks and
// threads.
//
// `statistics` is an array of 1 + 2 C doubles that is filled in two steps:
//   packed     n, then A per channel, then Q per channel (nn/layers/batch_statistics.h): it adds up
//              over ranks, so one sum all-reduce makes the global batch of it;
//   finished   N, then the mean per channel, then 1 / sqrt(variance + eps) per channel.
// The mean is kept in double and used as float + float remainder, so that normalising loses nothing
// when the mean is large against the deviation.
//
// Functions may be called from any thread; they use OpenMP threads where there is enough to do, and
// give the same bits for the same number of threads. gamma and beta are null for a layer without
// affine.
#pragma once

#include <cstdint>

namespace dlaunch::nn::cpu {

struct BatchNormExtent {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
};

/// The local batch's packed statistics.
void batch_norm_statistics(const float* x, BatchNormExtent extent, double* statistics);

/// Turns packed statistics into finished ones, in place, and moves the running statistics (null:
/// there are none) towards them. The global count must be above 1.
void batch_norm_finish(double* statistics, std::int64_t channels, double eps, double momentum,
                       float* running_mean, float* running_var);

/// Finished statistics from running ones, for evaluation.
void batch_norm_from_running(const float* running_mean, const float* running_var,
                             std::int64_t channels, double eps, double* statistics);

/// y = (x - mean) / std * gamma + beta.
void batch_norm_normalise(const float* x, BatchNormExtent extent, const double* statistics,
                          const float* gamma, const float* beta, float* y);

/// The local batch's sums that backward needs, per channel: sum dy (C doubles), then sum dy xhat
/// (C doubles). They add up over ranks.
void batch_norm_backward_sums(const float* dy, const float* x, BatchNormExtent extent,
                              const double* statistics, double* sums);

/// dx = gamma / std * (dy - S1 / N - xhat S2 / N), with S1 and S2 the sums over the global batch
/// (null where the statistics did not depend on x) and N its count, from `statistics`.
void batch_norm_backward_data(const float* dy, const float* x, BatchNormExtent extent,
                              const double* statistics, const float* gamma, const double* sums,
                              float* dx);

}  // namespace dlaunch::nn::cpu
