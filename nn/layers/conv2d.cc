#include "nn/layers/conv2d.h"

#include <utility>

namespace dlaunch::nn {

Conv2d::Conv2d(Backend& backend, std::int64_t in, std::int64_t out, std::int64_t kernel,
               Generator& generator, const Conv2dLayerOptions& options)
    : options_{options.stride, options.padding}, compute_type_(options.compute_type) {
  weight_ = add_parameter(
      "weight", make_weights(backend, {out, kernel, kernel, in}, options.initialisation, generator),
      ParameterKind::kWeight);
  if (options.bias) {
    bias_ = add_parameter("bias", make_bias(backend, out, in * kernel * kernel, generator),
                          ParameterKind::kBias);
  }
}

Tensor Conv2d::forward(Tensor input) {
  return conv2d(convert(std::move(input), compute_type_), weight_, bias_, options_);
}

std::string Conv2d::kind() const {
  const Shape& weight = weight_.shape();
  std::string text = "Conv2d(" + std::to_string(weight[3]) + ", " + std::to_string(weight[0]) +
                     ", kernel " + std::to_string(weight[1]);
  if (options_.stride != 1) text += ", stride " + std::to_string(options_.stride);
  if (options_.padding != 0) text += ", padding " + std::to_string(options_.padding);
  return text + ")";
}

Shape Conv2d::output_shape(const Shape& input) const {
  return conv2d_geometry(input, weight_.shape(), options_).output();
}

std::int64_t Conv2d::multiply_adds(const Shape& input) const {
  return output_shape(input).size() * (weight_.size() / weight_.shape()[0]);
}

}  // namespace dlaunch::nn
