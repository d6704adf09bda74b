// Linear: y = x W^T + b.
#pragma once

#include "nn/core/module.h"
#include "nn/layers/init.h"

namespace dlaunch::nn {

/// [N, in] -> [N, out]. Parameters: weight [out, in], bias [out].
class Linear : public Module {
 public:
  Linear(Backend& backend, std::int64_t in, std::int64_t out, Generator& generator,
         bool bias = true, Initialisation initialisation = Initialisation::kUniform);

  Tensor forward(Tensor input) override;
  std::string kind() const override;
  Shape output_shape(const Shape& input) const override;
  std::int64_t multiply_adds(const Shape& input) const override;

 private:
  Tensor weight_;
  Tensor bias_;  // undefined without bias
};

}  // namespace dlaunch::nn
