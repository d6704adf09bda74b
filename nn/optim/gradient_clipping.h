// GradientClipper: scales gradients down if their norm, over all of them, is above a bound
// (Pascanu, Mikolov & Bengio 2013), as torch.nn.utils.clip_grad_norm_ does: by max_norm / (norm +
// 1e-6).
//
//   clipper.begin();
//   for each part: clipper.add(count, gradients);
//   sum clipper.squares() over the ranks, if each has other parts
//   for each part: clipper.clip(count, gradients);
//
// Kernels only, so that steps can be recorded (Backend::record). One thread.
#pragma once

#include <cstdint>

#include "nn/core/tensor.h"

namespace dlaunch::nn {

class GradientClipper {
 public:
  /// Throws Error unless max_norm is above 0. The backend must outlive it.
  GradientClipper(Backend& backend, double max_norm);

  void begin();
  void add(std::int64_t count, const float* gradients);
  void clip(std::int64_t count, float* gradients);

  /// f64 [1]: the sum of the squares that were added since begin(); shares memory.
  Tensor squares() const { return squares_; }
  /// The norm before clipping; waits for the device.
  double norm() const;

 private:
  double max_norm_;
  Tensor squares_;
};

}  // namespace dlaunch::nn
