// Convolutions through cuDNN's graph interface, in f32 or, with activations in 16 bits (bf16, f16),
// in that type with f32 accumulation; images and filters stay in NHWC. For each pass of a geometry
// an engine is chosen when it is first needed, among those that give the same bits every time, and
// kept. With activations in 16 bits the weights are converted once per change of the weights, and
// gradients of weights are rounded to 16 bits before they are added up in f32: cuDNN 9 has no
// engine that writes f32 of operands in 16 bits.
#pragma once

#include <cstddef>
#include <optional>
#include <thread>
#include <unordered_map>

#include "nn/core/backend.h"
#include "nn/cuda/convolution_plan.h"
#include "nn/cuda/cuda_backend.h"
#include "nn/cuda/cudnn_handle.h"
#include "nn/cuda/device.h"
#include "runtime/base/logging.h"

namespace dlaunch::nn::cuda {

/// Used by the device's thread. The device must outlive it and the tensors that keep converted
/// weights.
class Convolutions {
 public:
  /// Throws Error.
  Convolutions(Device& device, const CudaOptions& options);

  void forward(const Conv2dGeometry& geometry, ConstArrayRef x, const WeightsRef& weights,
               const float* bias_or_null, ArrayRef y);
  void backward_data(const Conv2dGeometry& geometry, ConstArrayRef dy, const WeightsRef& weights,
                     ArrayRef dx);
  void backward_weights(const Conv2dGeometry& geometry, ConstArrayRef x, ConstArrayRef dy,
                        float* dw, float* db_or_null);

  /// After it cuDNN is only used by calls of these: while it starts it may wait for the device,
  /// which breaks off whatever is being recorded there.
  void await_first_question();

 private:
  struct Hash {
    std::size_t operator()(const Convolution& convolution) const;
  };

  void ask_early();
  bool run(const Convolution& convolution, const ConvolutionArrays& arrays);
  std::optional<ConvolutionPlan> choose(const Convolution& convolution,
                                        const ConvolutionArrays& arrays);
  const void* weights_in(DType dtype, const Conv2dGeometry& geometry, const WeightsRef& weights);

  Device& device_;
  const bool tf32_;
  const bool autotune_;
  const Logger logger_;
  std::optional<CudnnHandle> handle_;  // outlives the plans; made by first_question_ if that runs
  std::unordered_map<Convolution, std::optional<ConvolutionPlan>, Hash> plans_;  // none: no engine
  std::jthread first_question_;  // see CudaOptions::ask_early
};

}  // namespace dlaunch::nn::cuda
