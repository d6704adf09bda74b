#include "nn/layers/init.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace dlaunch::nn {
namespace {

void divide_by_deviation(std::span<float> values) {
  const auto count = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const float value : values) mean += static_cast<double>(value) / count;
  for (const float value : values) squares += std::pow(static_cast<double>(value) - mean, 2);
  if (squares == 0) return;  // a single one
  const auto factor = static_cast<float>(1 / std::sqrt(squares / (count - 1)));
  for (float& value : values) value *= factor;
}

/// Filters [out, height, width, in].
void make_dirac(const Shape& shape, std::span<float> values) {
  if (shape.rank() != 4) throw Error("weights " + shape.to_string() + " are no filters");
  const std::int64_t in = shape[3];
  const std::int64_t size = shape[1] * shape[2] * in;
  const std::int64_t centre = (shape[1] / 2 * shape[2] + shape[2] / 2) * in;
  for (std::int64_t i = 0; i < std::min(shape[0], in); ++i) {
    const auto filter =
        values.subspan(static_cast<std::size_t>(i * size), static_cast<std::size_t>(size));
    std::ranges::fill(filter, 0.0F);
    filter[static_cast<std::size_t>(centre + i)] = 1;
  }
}

}  // namespace

Tensor make_weights(Backend& backend, const Shape& shape, Initialisation initialisation,
                    Generator& generator) {
  if (shape.rank() < 2 || shape.size() == 0) {
    throw Error("weights " + shape.to_string() + " cannot be initialised");
  }
  std::vector<float> values(static_cast<std::size_t>(shape.size()));
  const std::int64_t fan_in = shape.size() / shape[0];
  const std::int64_t fan_out = shape.size() / shape[-1];
  if (initialisation == Initialisation::kKaimingFanOut) {
    generator.fill_normal(values, 0.0F,
                          static_cast<float>(std::sqrt(2.0 / static_cast<double>(fan_out))));
  } else {
    const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)));
    generator.fill_uniform(values, -bound, bound);
  }
  if (initialisation == Initialisation::kUnitDeviation) divide_by_deviation(values);
  if (initialisation == Initialisation::kDirac) make_dirac(shape, values);
  return Tensor::from<float>(backend, shape, values);
}

Tensor make_bias(Backend& backend, std::int64_t out, std::int64_t fan_in, Generator& generator) {
  std::vector<float> values(static_cast<std::size_t>(out));
  const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)));
  generator.fill_uniform(values, -bound, bound);
  return Tensor::from<float>(backend, {out}, values);
}

}  // namespace dlaunch::nn
