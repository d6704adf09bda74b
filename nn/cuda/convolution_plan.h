// What cuDNN needs to know for the three passes of a convolution of one geometry: its descriptors,
// and the algorithm chosen for each pass, if cuDNN has one. Throws Error, with the shapes, if cuDNN
// fails.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <optional>
#include <string>

#include "nn/core/backend.h"
#include "nn/cuda/device.h"

namespace dlaunch::nn::cuda {

/// Owns the descriptors.
class ConvolutionShapes {
 public:
  ConvolutionShapes(const Conv2dGeometry& geometry, DType dtype);
  ~ConvolutionShapes();
  ConvolutionShapes(const ConvolutionShapes&) = delete;
  ConvolutionShapes& operator=(const ConvolutionShapes&) = delete;

  cudnnTensorDescriptor_t x() const { return x_; }
  cudnnFilterDescriptor_t weights() const { return weights_; }
  cudnnTensorDescriptor_t y() const { return y_; }
  /// For a pass in this kind of arithmetic.
  cudnnConvolutionDescriptor_t convolution(cudnnMathType_t math) const;

  DType dtype() const { return dtype_; }
  /// "conv2d of input [...], weights [...], stride 1, padding 1"
  std::string describe(const char* pass) const;

 private:
  void make();
  void destroy() noexcept;

  Conv2dGeometry geometry_;
  DType dtype_;
  cudnnTensorDescriptor_t x_ = nullptr;
  cudnnFilterDescriptor_t weights_ = nullptr;
  cudnnTensorDescriptor_t y_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
};

/// An algorithm of cuDNN's, and what it needs.
template <typename Algorithm>
struct ChosenAlgorithm {
  Algorithm algorithm{};
  cudnnMathType_t math = CUDNN_FMA_MATH;
  std::size_t workspace = 0;
};

class ForwardPass {
 public:
  static std::optional<ForwardPass> find(cudnnHandle_t handle, const ConvolutionShapes& shapes,
                                         bool tf32);
  void run(cudnnHandle_t handle, Device& device, const ConvolutionShapes& shapes, const void* x,
           const void* weights, void* y) const;

 private:
  using Chosen = ChosenAlgorithm<cudnnConvolutionFwdAlgo_t>;
  explicit ForwardPass(const Chosen& chosen) : chosen_(chosen) {}

  Chosen chosen_;
};

class BackwardDataPass {
 public:
  static std::optional<BackwardDataPass> find(cudnnHandle_t handle, const ConvolutionShapes& shapes,
                                              bool tf32);
  void run(cudnnHandle_t handle, Device& device, const ConvolutionShapes& shapes,
           const void* weights, const void* dy, void* dx) const;

 private:
  using Chosen = ChosenAlgorithm<cudnnConvolutionBwdDataAlgo_t>;
  explicit BackwardDataPass(const Chosen& chosen) : chosen_(chosen) {}

  Chosen chosen_;
};

class BackwardWeightsPass {
 public:
  static std::optional<BackwardWeightsPass> find(cudnnHandle_t handle,
                                                 const ConvolutionShapes& shapes, bool tf32);
  /// dw = gradient + beta dw
  void run(cudnnHandle_t handle, Device& device, const ConvolutionShapes& shapes, const void* x,
           const void* dy, float beta, void* dw) const;

 private:
  using Chosen = ChosenAlgorithm<cudnnConvolutionBwdFilterAlgo_t>;
  explicit BackwardWeightsPass(const Chosen& chosen) : chosen_(chosen) {}

  Chosen chosen_;
};

}  // namespace dlaunch::nn::cuda
