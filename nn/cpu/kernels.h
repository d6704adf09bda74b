// The CPU backend's own kernels, on plain memory. What they compute is written in
// nn/core/backend.h; names and arguments are the same. They use OpenMP threads where there is
// enough to do; sums do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "nn/core/backend.h"

namespace dlaunch::nn::cpu {

// elementwise.cc
void fill(std::int64_t count, float value, float* y);
void convert(std::int64_t count, ConstArrayRef from, ArrayRef to);
void add(std::int64_t count, ConstArrayRef a, ConstArrayRef b, ArrayRef y);
void axpy(std::int64_t count, float alpha, const float* x, float* y);
void scale(std::int64_t count, float factor, ConstArrayRef x, ArrayRef y);  // of any type
void relu(std::int64_t count, ConstArrayRef x, ArrayRef y);
void relu_backward(std::int64_t count, ConstArrayRef y, ConstArrayRef dy, ArrayRef dx);

// dropout.cc
void dropout(std::int64_t count, double probability, const RandomState& random, ConstArrayRef x,
             ArrayRef y);

// rows.cc
void broadcast_rows(std::int64_t rows, std::int64_t columns, const float* row, float* y);
void accumulate_column_sums(std::int64_t rows, std::int64_t columns, const float* x, float* sums);

// pooling.cc
void max_pool2d(const PoolGeometry& geometry, ConstArrayRef x, ArrayRef y, std::uint8_t* argmax);
void max_pool2d_backward(const PoolGeometry& geometry, ConstArrayRef dy, const std::uint8_t* argmax,
                         ArrayRef dx);
void global_avg_pool(std::int64_t n, std::int64_t pixels, std::int64_t channels, ConstArrayRef x,
                     float* y);
void global_avg_pool_backward(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                              const float* dy, ArrayRef dx);

void window(const WindowGeometry& geometry, ConstArrayRef x, ArrayRef y);

// augment.cc
void augment(const AugmentedBatch& batch, ArrayRef y);

// smooth_activations.cc
void celu(std::int64_t count, float alpha, ConstArrayRef x, ArrayRef y);
void celu_backward(std::int64_t count, float alpha, ConstArrayRef x, ConstArrayRef dy, ArrayRef dx);

// smooth_activations.cc
void activate(Activation activation, std::int64_t count, ConstArrayRef x, ArrayRef y);
void activate_backward(Activation activation, std::int64_t count, ConstArrayRef x, ConstArrayRef dy,
                       ArrayRef dx);

// cross_entropy.cc
void cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                   const std::int32_t* labels, float smoothing, float* loss, float* gradient);

}  // namespace dlaunch::nn::cpu
