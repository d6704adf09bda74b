// ReLU: max(x, 0).
#pragma once

#include "nn/core/module.h"

namespace dlaunch::nn {

class ReLU : public Module {
 public:
  Tensor forward(Tensor input) override;
  std::string kind() const override { return "ReLU"; }
  Shape output_shape(const Shape& input) const override { return input; }
};

}  // namespace dlaunch::nn
