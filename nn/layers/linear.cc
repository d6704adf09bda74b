#include "nn/layers/linear.h"

#include <string>
#include <utility>

namespace dlaunch::nn {

Linear::Linear(Backend& backend, std::int64_t in, std::int64_t out, Generator& generator,
               const LinearOptions& options) {
  if (options.image_channels < 0 ||
      (options.image_channels > 0 && in % options.image_channels != 0))
    throw Error("linear: " + std::to_string(in) + " features are no image of " +
                std::to_string(options.image_channels) + " channels");
  weight_ =
      add_parameter("weight", make_weights(backend, {out, in}, options.initialisation, generator),
                    ParameterKind::kWeight, options.image_channels);
  if (options.bias) {
    bias_ = add_parameter("bias", make_bias(backend, out, in, generator), ParameterKind::kBias);
  }
}

Tensor Linear::forward(Tensor input) {
  return linear(input, weight_, bias_);
}

std::string Linear::kind() const {
  return "Linear(" + std::to_string(weight_.shape()[1]) + ", " +
         std::to_string(weight_.shape()[0]) + ")";
}

Shape Linear::output_shape(const Shape& input) const {
  if (input.rank() != 2 || input[1] != weight_.shape()[1]) {
    throw Error(kind() + " does not fit an input " + input.to_string());
  }
  return {input[0], weight_.shape()[0]};
}

std::int64_t Linear::multiply_adds(const Shape& input) const {
  return output_shape(input)[0] * weight_.size();
}

}  // namespace dlaunch::nn
