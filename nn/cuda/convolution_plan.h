// ConvolutionPlan: the engine that computes one pass of a convolution, chosen once.
#pragma once

#include <cudnn.h>

#include <string>
#include <utility>

#include "nn/cuda/convolution_graph.h"
#include "nn/cuda/device.h"
#include "nn/cuda/engine_plans.h"

namespace dlaunch::nn::cuda {

/// Where the tensors of a pass lie, in the order of ConvolutionPass.
struct ConvolutionArrays {
  const void* first;
  const void* second;
  void* result;
};

class ConvolutionPlan {
 public:
  /// Of the engines that find_engines() has for it, the first, on tensor cores (for f32: if `tf32`)
  /// where these suit; if `autotune`, the fastest of the first few, measured on these arrays, whose
  /// result is overwritten if the pass does not add to it; while kernels are recorded, when nothing
  /// can be measured, the first too. If the device has no memory for the workspace, another one: of
  /// those that can be measured, else that with the least workspace. Throws CudnnError, which is
  /// not_supported() if there is no engine; Error if there is no memory for what is measured.
  static ConvolutionPlan choose(cudnnHandle_t handle, Device& device,
                                const Convolution& convolution, bool tf32, bool autotune,
                                const ConvolutionArrays& arrays);

  /// Queues it. Throws CudnnError; Error if there is no memory for the workspace.
  void run(cudnnHandle_t handle, Device& device, const ConvolutionArrays& arrays) const;

  /// What has been chosen: "engine 38, 1.5 MiB of workspace, 0.012 ms; the fastest of 4"
  const std::string& description() const { return description_; }

 private:
  ConvolutionPlan(EnginePlan chosen, std::string description)
      : chosen_(std::move(chosen)), description_(std::move(description)) {}

  EnginePlan chosen_;
  std::string description_;
};

}  // namespace dlaunch::nn::cuda
