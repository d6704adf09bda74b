// Dropout: zeroes a random part of its input while training, and is the identity in evaluation.
#pragma once

#include "nn/core/module.h"

namespace dlaunch::nn {

class Dropout : public Module {
 public:
  /// The generator is the caller's and must outlive this layer; every training forward draws from
  /// it. Error unless probability is in [0, 1).
  Dropout(double probability, Generator& generator);

  Tensor forward(Tensor input) override;
  std::string kind() const override;
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  double probability_;
  Generator& generator_;
};

}  // namespace dlaunch::nn
