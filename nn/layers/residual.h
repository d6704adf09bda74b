// Residual: x + its children, one after the other.
#pragma once

#include <string>
#include <utility>

#include "nn/core/module.h"

namespace dlaunch::nn {

class Residual : public Sequential {
 public:
  Tensor forward(Tensor input) override {
    Tensor shortcut = input;
    return add(Sequential::forward(std::move(input)), std::move(shortcut));
  }
  std::string kind() const override { return "Residual"; }
};

}  // namespace dlaunch::nn
