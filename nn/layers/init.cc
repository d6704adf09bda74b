#include "nn/layers/init.h"

#include <cmath>
#include <vector>

namespace dlaunch::nn {

Tensor make_weights(Backend& backend, const Shape& shape, Initialisation initialisation,
                    Generator& generator) {
  if (shape.rank() < 2 || shape.size() == 0) {
    throw Error("weights " + shape.to_string() + " cannot be initialised");
  }
  std::vector<float> values(static_cast<std::size_t>(shape.size()));
  const std::int64_t fan_in = shape.size() / shape[0];
  const std::int64_t fan_out = shape.size() / shape[-1];
  switch (initialisation) {
    case Initialisation::kUniform: {
      const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)));
      generator.fill_uniform(values, -bound, bound);
      break;
    }
    case Initialisation::kKaimingFanOut:
      generator.fill_normal(values, 0.0F,
                            static_cast<float>(std::sqrt(2.0 / static_cast<double>(fan_out))));
      break;
  }
  return Tensor::from<float>(backend, shape, values);
}

Tensor make_bias(Backend& backend, std::int64_t out, std::int64_t fan_in, Generator& generator) {
  std::vector<float> values(static_cast<std::size_t>(out));
  const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)));
  generator.fill_uniform(values, -bound, bound);
  return Tensor::from<float>(backend, {out}, values);
}

}  // namespace dlaunch::nn
