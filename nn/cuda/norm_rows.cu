#include "nn/cuda/norm_rows.h"

#include "nn/core/norm_coefficients.h"
#include "nn/cuda/row_tiles.cuh"

namespace dlaunch::nn::cuda {
namespace {

struct Affine {
  const double* means;
  const double* inv_stds;
  const float* gamma;
  const float* beta;

  __device__ double gamma_of(std::int64_t channel) const {
    return gamma == nullptr ? 1.0 : static_cast<double>(gamma[channel]);
  }
  __device__ double beta_of(std::int64_t channel) const {
    return beta == nullptr ? 0.0 : static_cast<double>(beta[channel]);
  }
};

// A NaN stays one.
template <bool kRelu>
__device__ float activated(float value) {
  return kRelu && value < 0.0F ? 0.0F : value;
}

template <int kWidth, bool kResidual, bool kRelu, typename T>
__global__ void normalise_rows(NormExtent extent, const T* x, Affine affine, const T* residual,
                               T* y) {
  const std::int64_t channel = first_channel<kWidth>();
  if (channel >= extent.channels) return;
  NormaliseCoefficients of[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k)
    of[k] = normalise_coefficients(affine.means[channel + k], affine.inv_stds[channel + k],
                                   affine.gamma_of(channel + k), affine.beta_of(channel + k));
  for (std::int64_t row = first_row(); row < extent.rows; row += row_step()) {
    const std::int64_t offset = row * extent.channels + channel;
    float values[kWidth];
    float added[kWidth] = {};
    load_pack(x + offset, values);
    if constexpr (kResidual) load_pack(residual + offset, added);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      float value = (values[k] - of[k].shift) * of[k].scale + of[k].offset;
      if constexpr (kResidual) value += added[k];
      values[k] = activated<kRelu>(value);
    }
    store_pack(y + offset, values);
  }
}

template <int kWidth, typename T>
__global__ void backward_rows(NormExtent extent, const T* dy, const T* x, Affine affine,
                              const double* count, const double* sums, T* dx) {
  const std::int64_t channel = first_channel<kWidth>();
  if (channel >= extent.channels) return;
  BackwardCoefficients of[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const std::int64_t c = channel + k;
    of[k] = sums == nullptr
                ? backward_coefficients(affine.means[c], affine.inv_stds[c], affine.gamma_of(c))
                : backward_coefficients(affine.means[c], affine.inv_stds[c], affine.gamma_of(c),
                                        *count, sums[c], sums[extent.channels + c]);
  }
  for (std::int64_t row = first_row(); row < extent.rows; row += row_step()) {
    const std::int64_t offset = row * extent.channels + channel;
    float gradients[kWidth];
    float values[kWidth];
    load_pack(dy + offset, gradients);
    load_pack(x + offset, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      gradients[k] =
          gradients[k] * of[k].scale + (values[k] - of[k].shift) * of[k].slope + of[k].offset;
    store_pack(dx + offset, gradients);
  }
}

template <int kWidth, typename T>
void start_normalise(Device& device, NormExtent extent, const T* x, const Affine& affine,
                     const T* residual, bool relu, T* y) {
  const auto [grid, block] = row_tiles(extent.rows, divide_up(extent.channels, kWidth));
  auto* kernel = normalise_rows<kWidth, false, false, T>;
  if (residual != nullptr && relu) {
    kernel = normalise_rows<kWidth, true, true, T>;
  } else if (residual != nullptr) {
    kernel = normalise_rows<kWidth, true, false, T>;
  } else if (relu) {
    kernel = normalise_rows<kWidth, false, true, T>;
  }
  launch(device, "normalise", kernel, grid, block, extent, x, affine, residual, y);
}

template <int kWidth, typename T>
void start_backward(Device& device, NormExtent extent, const T* dy, const T* x,
                    const Affine& affine, const double* count, const double* sums, T* dx) {
  const auto [grid, block] = row_tiles(extent.rows, divide_up(extent.channels, kWidth));
  launch(device, "batch norm backward", backward_rows<kWidth, T>, grid, block, extent, dy, x,
         affine, count, sums, dx);
}

}  // namespace

void normalise(Device& device, NormExtent extent, ConstArrayRef x, const double* statistics,
               const float* gamma, const float* beta, const NormEpilogue& epilogue, ArrayRef y) {
  if (extent.rows == 0) return;
  const Affine affine{statistics + 1, statistics + 1 + extent.channels, gamma, beta};
  visit_activation(x.dtype, [&]<typename T>() {
    const T* from = as<T>(x);
    const T* residual = as<T>(epilogue.residual);
    T* to = as<T>(y);
    if (packs_fit<T>(extent.channels, from, residual, to)) {
      start_normalise<kPackOf<T>>(device, extent, from, affine, residual, epilogue.relu, to);
    } else {
      start_normalise<1>(device, extent, from, affine, residual, epilogue.relu, to);
    }
  });
}

void normalise_backward(Device& device, NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                        const double* statistics, const float* gamma, const double* sums,
                        ArrayRef dx) {
  if (extent.rows == 0) return;
  const Affine affine{statistics + 1, statistics + 1 + extent.channels, gamma, nullptr};
  visit_activation(x.dtype, [&]<typename T>() {
    const T* gradients = as<T>(dy);
    const T* from = as<T>(x);
    T* to = as<T>(dx);
    if (packs_fit<T>(extent.channels, gradients, from, to)) {
      start_backward<kPackOf<T>>(device, extent, gradients, from, affine, statistics, sums, to);
    } else {
      start_backward<1>(device, extent, gradients, from, affine, statistics, sums, to);
    }
  });
}

}  // namespace dlaunch::nn::cuda
