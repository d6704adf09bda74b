// NormFunction in kernels: its numbers per channel, and its activation as a type.
#pragma once

#include "nn/core/norm_coefficients.h"
#include "nn/core/norm_kernels.h"
#include "nn/cuda/activation_functions.cuh"

namespace dlaunch::nn::cuda {

struct Affine {
  const double* means;
  const double* inv_stds;
  const float* gamma;
  const float* beta;

  Affine(const NormFunction& function, std::int64_t channels)
      : means(function.statistics + 1),
        inv_stds(function.statistics + 1 + channels),
        gamma(function.gamma),
        beta(function.beta) {}

  /// From that of the first part to that of another one.
  __device__ void enter_part(std::int64_t part, std::int64_t channels) {
    means += part * norm_statistics_size(channels);
    inv_stds += part * norm_statistics_size(channels);
  }

  __device__ double gamma_of(std::int64_t channel) const {
    return gamma == nullptr ? 1.0 : static_cast<double>(gamma[channel]);
  }
  __device__ NormaliseCoefficients coefficients_of(std::int64_t channel) const {
    return normalise_coefficients(means[channel], inv_stds[channel], gamma_of(channel),
                                  beta == nullptr ? 0.0 : static_cast<double>(beta[channel]));
  }
};

/// What the activation is applied to. The same bits in every kernel.
__device__ inline float normalised(float x, const NormaliseCoefficients& of) {
  return (x - of.shift) * of.scale + of.offset;
}

/// Calls visit(activation), of activation_functions.cuh.
template <typename Visit>
void visit_norm_activation(const NormFunction& function, const Visit& visit) {
  switch (function.activation) {
    case NormActivation::kNone:
      return visit(NoActivation{});
    case NormActivation::kRelu:
      return visit(Relu{});
    case NormActivation::kGelu:
      return visit(Gelu{});
    case NormActivation::kSilu:
      return visit(Silu{});
    case NormActivation::kCelu:
      return visit(Celu{function.alpha});
  }
}

}  // namespace dlaunch::nn::cuda
