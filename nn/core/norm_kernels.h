// NormKernels: the part of a Backend that batch normalisation runs on. The rules of backend.h hold:
// device memory, one thread at a time, kernels may return before they are done, nothing is checked.
//
// A batch is `rows` rows of `channels` activations (f32, bf16 or f16, all of a call the same),
// channels innermost: [N, C] features, or an NHWC batch of images with rows = N H W. There may be
// no rows at all, and any number of channels.
//
// What follows a normalisation in most networks is fused into it: adding a residual, and an
// activation function, whose argument z backward makes again of what was normalised, which it reads
// anyway. So is max-pooling before it, on devices that can (PooledNormKernels).
//
// A batch may be cut into parts, each of which is normalised by itself (RowParts).
//
// `statistics` is 1 + 2 C doubles for each part that stay on the device and are filled in two
// steps:
//   packed    n, then A per channel, then Q per channel (nn/core/batch_statistics.h). They add up
//             over ranks: one sum all-reduce makes the global batch of them.
//   finished  N, then the mean per channel, then 1 / sqrt(variance + eps) per channel.
#pragma once

#include <cstdint>

#include "nn/core/backend.h"
#include "nn/core/row_parts.h"

namespace dlaunch::nn {

struct NormExtent {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  RowParts parts = {};
};

/// Of one part, in doubles.
constexpr std::int64_t norm_statistics_size(std::int64_t channels) {
  return 1 + 2 * channels;
}

/// What follows a normalisation.
enum class NormActivation : std::uint8_t {
  kNone,
  kRelu,
  kGelu,  // as Activation
  kSilu,
  kCelu,  // as Backend::celu
};

/// activation(z) of z = gamma (x - mean) / std + beta.
struct NormFunction {
  const double* statistics = nullptr;  // finished
  const float* gamma = nullptr;        // null: ones
  const float* beta = nullptr;         // null: zeros
  NormActivation activation = NormActivation::kNone;
  float alpha = 1;  // of CELU
};

/// Running statistics, null where there are none.
struct RunningStatistics {
  float* mean = nullptr;
  float* variance = nullptr;
};

/// How packed statistics become finished ones: the running statistics move by `momentum` towards
/// the mean and the unbiased variance, of several parts towards those with rows' average.
struct StatisticsFinish {
  double eps = 0;
  double momentum = 0;
  RunningStatistics running;
};

/// Where to add the gradients of gamma and beta; null: nobody wants them.
struct AffineGradients {
  float* gamma = nullptr;
  float* beta = nullptr;
};

/// What a device may have besides: max-pooling in the same passes as the normalisation of its
/// result. `x` is the pooling's result here, `pool` says of what shape.
class PooledNormKernels {
 public:
  virtual ~PooledNormKernels() = default;

  /// Makes x and `argmax` (null: not wanted) of `input`, as Backend::max_pool2d, and the statistics
  /// of x, of so many parts, as NormKernels::batch_statistics.
  virtual bool pool_and_sum(const PoolGeometry& pool, std::int64_t parts, ConstArrayRef input,
                            ArrayRef x, std::uint8_t* argmax, const StatisticsFinish* finish,
                            double* statistics) = 0;

  /// The gradient of the pooling's input: NormKernels::backward_data, and what
  /// Backend::max_pool2d_backward makes of that.
  virtual void backward_data(const PoolGeometry& pool, std::int64_t parts, ConstArrayRef dy,
                             ConstArrayRef x, const std::uint8_t* argmax,
                             const NormFunction& function, const double* sums, ArrayRef dinput) = 0;
};

class NormKernels {
 public:
  virtual ~NormKernels() = default;

  /// The statistics of the local batch x: packed if `finish` is null, else finished, with the
  /// result of finish_statistics(), in no more launches.
  virtual bool batch_statistics(NormExtent extent, ConstArrayRef x, const StatisticsFinish* finish,
                                double* statistics) = 0;

  /// Turns packed statistics into finished ones, in place. False, and the running statistics as
  /// they were, if a part is a single row, whose variance says nothing; a device that cannot know
  /// yet returns true and reports it when it is next synchronised.
  virtual bool finish_statistics(std::int64_t parts, std::int64_t channels,
                                 const StatisticsFinish& finish, double* statistics) = 0;

  /// Finished statistics of one part from running ones, for evaluation.
  virtual void statistics_from_running(std::int64_t channels, double eps, const float* running_mean,
                                       const float* running_variance, double* statistics) = 0;

  /// y = activation(z + residual). A residual (null: none) goes with ReLU or no activation. In
  /// place, also of the residual.
  virtual void normalise(NormExtent extent, ConstArrayRef x, const NormFunction& function,
                         ConstArrayRef residual, ArrayRef y) = 0;

  /// The local batch's sums that backward needs, for each part: sum dz (C doubles), then sum dz
  /// xhat (C doubles), with dz = dy activation'(z) and xhat = (x - mean) / std. They add up over
  /// ranks. The same, summed over all parts, is added to the gradients of beta and gamma.
  virtual void backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                             const NormFunction& function, double* sums,
                             AffineGradients gradients) = 0;

  /// The same behind a residual and a ReLU with the output y: of masked = (y > 0 ? dy : 0), which
  /// is stored. In place (masked == dy).
  virtual void masked_backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                                    ConstArrayRef y, const double* statistics, double* sums,
                                    AffineGradients gradients, ArrayRef masked) = 0;

  /// dx = gamma / std (dz - S1 / N - xhat S2 / N), with S1 and S2 the sums over the whole part, or
  /// null where the statistics did not depend on x. In place (dx == dy).
  virtual void backward_data(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                             const NormFunction& function, const double* sums, ArrayRef dx) = 0;

  /// Null if the device has none for these windows: then pooling is a kernel of its own.
  virtual PooledNormKernels* pooled(const PoolGeometry& /*pool*/) { return nullptr; }
};

}  // namespace dlaunch::nn
