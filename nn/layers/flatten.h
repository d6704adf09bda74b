// Flatten: [N, ...] -> [N, rest].
#pragma once

#include "nn/core/module.h"

namespace dlaunch::nn {

class Flatten : public Module {
 public:
  Tensor forward(Tensor input) override { return flatten(input); }
  std::string kind() const override { return "Flatten"; }
  Shape output_shape(const Shape& input) const override { return flattened(input); }
};

}  // namespace dlaunch::nn
