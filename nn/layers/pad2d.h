// Pad2d: rows and columns of zeros around images.
#pragma once

#include <string>

#include "nn/core/module.h"

namespace dlaunch::nn {

class Pad2d : public Module {
 public:
  explicit Pad2d(const Padding& padding) : padding_(padding) {}
  Tensor forward(Tensor input) override { return pad2d(input, padding_); }
  std::string kind() const override { return "Pad2d"; }
  Shape output_shape(const Shape& input) const override {
    return pad2d_geometry(input, padding_).output();
  }

 private:
  Padding padding_;
};

}  // namespace dlaunch::nn
