// Convolutions through cuDNN, in f32 or, with activations in 16 bits (bf16, f16), in that type with
// f32 accumulation; images and filters stay in NHWC. Algorithms are chosen by cuDNN's heuristics
// among those that give the same bits every time, once per geometry, and kept. With activations in
// 16 bits the weights are converted once per change of the weights, and gradients of weights are
// rounded to 16 bits before they are added up in f32, as cuDNN's interface for single convolutions
// has it.
#pragma once

#include <cudnn.h>

#include <memory>
#include <unordered_map>

#include "nn/core/backend.h"
#include "nn/cuda/device.h"

namespace dlaunch::nn::cuda {

/// Used by the device's thread. The device must outlive it and the tensors that keep converted
/// weights.
class Convolutions {
 public:
  /// f32 is multiplied in TF32 if `tf32`. Throws Error.
  Convolutions(Device& device, bool tf32);
  ~Convolutions();
  Convolutions(const Convolutions&) = delete;
  Convolutions& operator=(const Convolutions&) = delete;

  void forward(const Conv2dGeometry& geometry, ConstArrayRef x, const WeightsRef& weights,
               const float* bias_or_null, ArrayRef y);
  void backward_data(const Conv2dGeometry& geometry, ConstArrayRef dy, const WeightsRef& weights,
                     ArrayRef dx);
  void backward_weights(const Conv2dGeometry& geometry, ConstArrayRef x, ConstArrayRef dy,
                        float* dw, float* db_or_null);

 private:
  struct Plan;
  struct Key {
    Conv2dGeometry geometry;
    DType dtype;  // of activations
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };

  Plan& plan(const Conv2dGeometry& geometry, DType dtype);
  bool does(const Conv2dGeometry& geometry, DType dtype);
  const void* weights_in(DType dtype, const Conv2dGeometry& geometry, const WeightsRef& weights);

  Device& device_;
  bool tf32_;
  cudnnHandle_t handle_ = nullptr;
  std::unordered_map<Key, std::unique_ptr<Plan>, KeyHash> plans_;
};

}  // namespace dlaunch::nn::cuda
