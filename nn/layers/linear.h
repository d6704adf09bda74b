// Linear: y = x W^T + b.
#pragma once

#include "nn/core/module.h"
#include "nn/layers/init.h"

namespace dlaunch::nn {

struct LinearOptions {
  bool bias = true;
  Initialisation initialisation = Initialisation::kUniform;
  /// Of the image that the input is, flattened; 0: it is none. Says where columns lie in files.
  std::int64_t image_channels = 0;
};

/// [N, in] -> [N, out]. Parameters: weight [out, in], bias [out].
class Linear : public Module {
 public:
  /// Error if the input is not made of whole pixels.
  Linear(Backend& backend, std::int64_t in, std::int64_t out, Generator& generator,
         const LinearOptions& options = {});

  Tensor forward(Tensor input) override;
  std::string kind() const override;
  Shape output_shape(const Shape& input) const override;
  std::int64_t multiply_adds(const Shape& input) const override;

 private:
  Tensor weight_;
  Tensor bias_;  // undefined without bias
};

}  // namespace dlaunch::nn
