// The CUDA backend's own kernels. What they compute is written in nn/core/backend.h; names and
// arguments are the same. They are started on the device's stream and return at once.
#pragma once

#include <cstdint>
#include <span>

#include "nn/core/backend.h"
#include "nn/core/optimizer_kernels.h"
#include "nn/cuda/device.h"

namespace dlaunch::nn::cuda {

// elementwise.cu
void fill(Device& device, std::int64_t count, float value, float* y);
void convert(Device& device, std::int64_t count, ConstArrayRef from, ArrayRef to);
struct Conversion {
  Device& device;
  void operator()(std::int64_t count, ConstArrayRef from, ArrayRef to) const {
    convert(device, count, from, to);
  }
};
void add(Device& device, std::int64_t count, ConstArrayRef a, ConstArrayRef b, ArrayRef y);
void axpy(Device& device, std::int64_t count, float alpha, const float* x, float* y);
void scale(Device& device, std::int64_t count, float factor, const float* scale_or_null,
           ConstArrayRef x, ArrayRef y);  // of any type
void relu(Device& device, std::int64_t count, ConstArrayRef x, ArrayRef y);
void relu_backward(Device& device, std::int64_t count, ConstArrayRef y, ConstArrayRef dy,
                   ArrayRef dx);
void activate(Device& device, Activation activation, std::int64_t count, ConstArrayRef x,
              ArrayRef y);
void activate_backward(Device& device, Activation activation, std::int64_t count, ConstArrayRef x,
                       ConstArrayRef dy, ArrayRef dx);
void celu(Device& device, std::int64_t count, float alpha, ConstArrayRef x, ArrayRef y);
void celu_backward(Device& device, std::int64_t count, float alpha, ConstArrayRef x,
                   ConstArrayRef dy, ArrayRef dx);
/// y += x, of any types.
void accumulate(Device& device, std::int64_t count, ConstArrayRef x, float* y);

// dropout.cu
void dropout(Device& device, std::int64_t count, double probability, const RandomState& random,
             ConstArrayRef x, ArrayRef y);

// rows.cu
void broadcast_rows(Device& device, std::int64_t rows, std::int64_t columns, const float* row,
                    float* y);
/// y[r][c] += row[c].
void add_to_rows(Device& device, std::int64_t rows, std::int64_t columns, const float* row,
                 ArrayRef y);
void accumulate_column_sums(Device& device, std::int64_t rows, std::int64_t columns,
                            ConstArrayRef x, float* sums);

// augment.cu
void augment(Device& device, const AugmentedBatch& batch, ArrayRef y);

// pooling.cu
void max_pool2d(Device& device, const PoolGeometry& geometry, ConstArrayRef x, ArrayRef y,
                std::uint8_t* argmax);
void max_pool2d_backward(Device& device, const PoolGeometry& geometry, ConstArrayRef dy,
                         const std::uint8_t* argmax, ArrayRef dx);
void global_avg_pool(Device& device, std::int64_t n, std::int64_t pixels, std::int64_t channels,
                     ConstArrayRef x, float* y);
void global_avg_pool_backward(Device& device, std::int64_t n, std::int64_t pixels,
                              std::int64_t channels, const float* dy, ArrayRef dx);
void window(Device& device, const WindowGeometry& geometry, ConstArrayRef x, ArrayRef y);

// cross_entropy.cu
void cross_entropy(Device& device, std::int64_t n, std::int64_t classes, const float* logits,
                   const std::int32_t* labels, float smoothing, float* loss, float* gradient);

// muon.cu: as OptimizerKernels has them
void muon_directions(Device& device, std::span<const MuonMatrix> matrices,
                     const float* skip_or_null, bool nesterov);
void muon_step(Device& device, std::span<const MuonMatrix> matrices, const float* skip_or_null);

// loss_scaling.cu: as OptimizerKernels has them
void begin_scaled_step(Device& device, const LossScaleState* state, const LossScaleStep* step,
                       float* gradient, float* not_finite);
void unscale(Device& device, std::int64_t count, const LossScaleState* state,
             const LossScaleStep* step, float* gradients, float* not_finite);
void move_loss_scale(Device& device, const LossScaleRule& rule, const float* not_finite,
                     LossScaleState* state);

}  // namespace dlaunch::nn::cuda
