// The weight gradient of a convolution as a matrix product: dW = dY^T X, where row p of X holds the
// patch of the input that output pixel p sees ("im2col"). For large images this is slower than
// oneDNN's own convolution, for outputs of a few pixels much faster.
#pragma once

#include "nn/core/backend.h"
#include "nn/cpu/onednn.h"

namespace dlaunch::nn::cpu {

/// One geometry. Used by one thread at a time.
class WeightGradientMatmul {
 public:
  /// Whether this way is taken: for the geometries in which oneDNN's convolution is slow.
  static bool pays(const Conv2dGeometry& geometry, DType dtype);

  WeightGradientMatmul(const dnnl::engine& engine, const Conv2dGeometry& geometry, DType dtype);

  /// dw += ... Throws dnnl::error.
  void run(OneDnnContext context, ConstArrayRef x, ConstArrayRef dy, float* dw) const;

 private:
  Conv2dGeometry geometry_;
  Prepared<dnnl::matmul> product_;
};

}  // namespace dlaunch::nn::cpu
