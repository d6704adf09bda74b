// One pass of a convolution, and how it is told to cuDNN's graph interface: as a graph of a single
// operation on tensors whose strides say that they lie in NHWC.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <string>

#include "nn/core/backend.h"
#include "nn/cuda/cudnn_descriptor.h"

namespace dlaunch::nn::cuda {

enum class ConvolutionPass : std::uint8_t {
  kForward,          // of x and weights: y
  kBackwardData,     // of dy and weights: dx
  kBackwardWeights,  // of x and dy: dw
};

struct Convolution {
  Conv2dGeometry geometry;
  DType dtype;  // of all three tensors; sums are f32
  ConvolutionPass pass;

  /// Whether the result is added to what is there: gradients of weights are, in f32.
  bool accumulates() const {
    return pass == ConvolutionPass::kBackwardWeights && dtype == DType::kF32;
  }
  /// "conv2d backward of the weights of input [...], weights [...], stride 1, padding 1, f32"
  std::string describe() const;
  friend bool operator==(const Convolution&, const Convolution&) = default;
};

/// The tensors of a pass in the order in which ConvolutionPass has them, by which a plan is given
/// their addresses.
enum ConvolutionTensor : std::int64_t { kFirstTensor = 1, kSecondTensor = 2, kResultTensor = 3 };

/// What all tensors' addresses are multiples of: the widest that kernels read at once.
constexpr std::int64_t kTensorAlignment = 16;

/// Throws CudnnError.
CudnnDescriptor make_operation_graph(cudnnHandle_t handle, const Convolution& convolution);

}  // namespace dlaunch::nn::cuda
