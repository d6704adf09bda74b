// NormFunction in kernels: its numbers per channel, and its activation as a type.
#pragma once

#include <cstring>

#include "nn/core/norm_coefficients.h"
#include "nn/core/norm_kernels.h"
#include "nn/cuda/activation_functions.cuh"
#include "nn/cuda/row_tiles.cuh"

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

  /// That of another part, being that of the first.
  __device__ Affine of_part(std::int64_t part, std::int64_t channels) const {
    Affine other = *this;
    other.means += part * norm_statistics_size(channels);
    other.inv_stds += part * norm_statistics_size(channels);
    return other;
  }

  __device__ double gamma_of(std::int64_t channel) const {
    return gamma == nullptr ? 1.0 : static_cast<double>(gamma[channel]);
  }
  __device__ NormaliseCoefficients coefficients_of(std::int64_t channel) const {
    return normalise_coefficients(means[channel], inv_stds[channel], gamma_of(channel),
                                  beta == nullptr ? 0.0 : static_cast<double>(beta[channel]));
  }
};

/// What make(channel) returns, floats, for each channel of the thread's pack. Each channel is made
/// by one of the block's threads, all of which must come here: by each thread for itself it would
/// be made as often as there are threads below each other, and read in pieces of 8 bytes that are
/// far apart, which for small arrays takes longer than the rows.
template <int kWidth, typename Value, typename Make>
__device__ void make_for_block(std::int64_t channels, const Make& make, Value (&own)[kWidth]) {
  constexpr int kWords = sizeof(Value) / sizeof(float);
  // Threads beside each other, which make channels of the same pack, write to different banks.
  __shared__ float shared[kWords][kWidth][32 + 32 / kWidth];
  float words[kWords];
  const int column = thread_of_block();
  const int columns = static_cast<int>(blockDim.x) * kWidth;
  const std::int64_t channel = std::int64_t{blockIdx.x} * columns + column;
  if (column < columns && channel < channels) {
    const Value value = make(channel);
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (int w = 0; w < kWords; ++w) shared[w][column % kWidth][column / kWidth] = words[w];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = shared[w][k][threadIdx.x];
    memcpy(&own[k], words, sizeof words);
  }
}

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
