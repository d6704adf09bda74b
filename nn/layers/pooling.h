// Pooling layers of NHWC images.
#pragma once

#include "nn/core/module.h"

namespace dlaunch::nn {

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(const Pool2dOptions& options) : options_(options) {}

  Tensor forward(Tensor input) override { return max_pool2d(input, options_); }
  std::string kind() const override;
  Shape output_shape(const Shape& input) const override;

 private:
  Pool2dOptions options_;
};

/// [N, H, W, C] -> [N, C], the mean over the pixels.
class GlobalAvgPool : public Module {
 public:
  Tensor forward(Tensor input) override { return global_avg_pool(input); }
  std::string kind() const override { return "GlobalAvgPool"; }
  Shape output_shape(const Shape& input) const override;
};

/// [N, H, H, C] -> [N, C], the maximum over the pixels plus the mean over them, in f32.
class GlobalMaxPlusMean : public Module {
 public:
  Tensor forward(Tensor input) override;
  std::string kind() const override { return "GlobalMaxPlusMean"; }
  Shape output_shape(const Shape& input) const override;
};

}  // namespace dlaunch::nn
