// Activation functions as modules, and a constant factor. All keep the input's shape.
#pragma once

#include <string>
#include <utility>

#include "nn/core/module.h"

namespace dlaunch::nn {

class Gelu : public Module {
 public:
  Tensor forward(Tensor input) override { return gelu(std::move(input)); }
  std::string kind() const override { return "GELU"; }
  Shape output_shape(const Shape& input) const override { return input; }
};

class Silu : public Module {
 public:
  Tensor forward(Tensor input) override { return silu(std::move(input)); }
  std::string kind() const override { return "SiLU"; }
  Shape output_shape(const Shape& input) const override { return input; }
};

class Scale : public Module {
 public:
  explicit Scale(float factor) : factor_(factor) {}
  Tensor forward(Tensor input) override { return scale(std::move(input), factor_); }
  std::string kind() const override { return "Scale"; }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  float factor_;
};

}  // namespace dlaunch::nn
