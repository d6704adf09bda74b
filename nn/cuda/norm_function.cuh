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

/// Calls function.operator()<A>() with the activation's type.
template <typename Function>
void visit_norm_activation(NormActivation activation, const Function& function) {
  switch (activation) {
    case NormActivation::kNone:
      return function.template operator()<NoActivation>();
    case NormActivation::kRelu:
      return function.template operator()<Relu>();
    case NormActivation::kGelu:
      return function.template operator()<Gelu>();
    case NormActivation::kSilu:
      return function.template operator()<Silu>();
  }
}

}  // namespace dlaunch::nn::cuda
