#include "nn/layers/pooling.h"

namespace dlaunch::nn {

std::string MaxPool2d::kind() const {
  std::string text = "MaxPool2d(" + std::to_string(options_.kernel);
  if (options_.stride != 0) text += ", stride " + std::to_string(options_.stride);
  if (options_.padding != 0) text += ", padding " + std::to_string(options_.padding);
  return text + ")";
}

Shape MaxPool2d::output_shape(const Shape& input) const {
  return max_pool2d_geometry(input, options_).output();
}

Shape GlobalAvgPool::output_shape(const Shape& input) const {
  if (input.rank() != 4) throw Error("GlobalAvgPool does not fit an input " + input.to_string());
  return {input[0], input[3]};
}

Tensor GlobalMaxPlusMean::forward(Tensor input) {
  const Shape shape = output_shape(input.shape());
  const Tensor highest = max_pool2d(input, {.kernel = input.shape()[1]});
  return add(convert(reshape(highest, shape), DType::kF32), global_avg_pool(input));
}

Shape GlobalMaxPlusMean::output_shape(const Shape& input) const {
  if (input.rank() != 4 || input[1] != input[2])
    throw Error("GlobalMaxPlusMean does not fit an input " + input.to_string());
  (void)max_pool2d_geometry(input, {.kernel = input[1]});
  return {input[0], input[3]};
}

}  // namespace dlaunch::nn
