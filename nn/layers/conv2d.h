// Conv2d: a two-dimensional convolution of NHWC images with square kernels.
#pragma once

#include "nn/core/module.h"
#include "nn/layers/init.h"

namespace dlaunch::nn {

struct Conv2dLayerOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool bias = true;
  Initialisation initialisation = Initialisation::kUniform;
  /// The input is converted to this type, f32, bf16 or f16, and the result has it.
  DType compute_type = DType::kF32;
};

/// Parameters: weight [out, kernel, kernel, in], bias [out].
class Conv2d : public Module {
 public:
  Conv2d(Backend& backend, std::int64_t in, std::int64_t out, std::int64_t kernel,
         Generator& generator, const Conv2dLayerOptions& options = {});

  Tensor forward(Tensor input) override;
  std::string kind() const override;
  Shape output_shape(const Shape& input) const override;
  std::int64_t multiply_adds(const Shape& input) const override;

 private:
  Conv2dOptions options_;
  DType compute_type_;
  Tensor weight_;
  Tensor bias_;  // undefined without bias
};

}  // namespace dlaunch::nn
