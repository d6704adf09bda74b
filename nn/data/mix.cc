#include "nn/data/mix.h"

#include <algorithm>
#include <cmath>

namespace dlaunch::nn {
namespace {

/// Beta(alpha, alpha), by Jöhnk's method (1964).
double draw_beta(double alpha, Generator& generator) {
  while (true) {
    const double x = std::pow(static_cast<double>(generator.uniform()), 1 / alpha);
    const double y = std::pow(static_cast<double>(generator.uniform()), 1 / alpha);
    if (x + y > 0 && x + y <= 1) return x / (x + y);
  }
}

/// [begin, end) of `side` pixels around a random place, cut at the edges.
void draw_interval(double side, std::size_t size, Generator& generator, int& begin, int& end) {
  const auto centre = static_cast<double>(generator.below(static_cast<std::uint32_t>(size)));
  const auto length = static_cast<double>(size);
  begin = static_cast<int>(std::clamp(std::floor(centre - side / 2), 0.0, length));
  end = static_cast<int>(std::clamp(std::floor(centre + side / 2), 0.0, length));
}

}  // namespace

Mix draw_mix(const MixOptions& options, const ImageShape& shape, Generator generator) {
  Mix mix;
  if (options.kind == MixKind::kNone) return mix;
  const double share = draw_beta(options.alpha, generator);
  const bool second = generator.below(2) == 1;
  mix.rectangle = options.kind == MixKind::kCutmix || (options.kind == MixKind::kEither && second);
  mix.own_share = static_cast<float>(share);
  if (!mix.rectangle) return mix;
  const double side = std::sqrt(1 - share);
  draw_interval(side * static_cast<double>(shape.height), shape.height, generator, mix.top,
                mix.bottom);
  draw_interval(side * static_cast<double>(shape.width), shape.width, generator, mix.left,
                mix.right);
  const auto area = static_cast<double>((mix.bottom - mix.top) * (mix.right - mix.left));
  mix.own_share = static_cast<float>(1 - area / static_cast<double>(shape.height * shape.width));
  return mix;
}

void apply_mix(const Mix& mix, const ImageShape& shape, std::span<const float> partner,
               std::span<float> image) {
  const auto height = static_cast<int>(shape.height);
  const auto width = static_cast<int>(shape.width);
  std::size_t i = 0;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (std::size_t c = 0; c < shape.channels; ++c, ++i)
        image[i] = mixed(mix, y, x, image[i], partner[i]);
}

}  // namespace dlaunch::nn
