#include "nn/data/transform.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "nn/core/error.h"

namespace dlaunch::nn {
namespace {

/// Mirrors a coordinate into [0, size): -1 becomes 1, size becomes size - 2.
std::ptrdiff_t reflect(std::ptrdiff_t position, std::ptrdiff_t size) {
  if (position < 0) return -position;
  if (position >= size) return 2 * size - 2 - position;
  return position;
}

}  // namespace

ImageTransform::ImageTransform(const ImageShape& shape, const Normalization& normalization,
                               const Augmentation& augmentation)
    : shape_(shape), augmentation_(augmentation) {
  if (normalization.mean.size() != shape.channels ||
      normalization.deviation.size() != shape.channels)
    throw Error(fmt::format("normalization: {} means and {} deviations for {} channels",
                            normalization.mean.size(), normalization.deviation.size(),
                            shape.channels));
  if (augmentation.crop_padding >= std::min(shape.height, shape.width))
    throw Error(fmt::format("augmentation: padding {} is not below the image's side {}",
                            augmentation.crop_padding, std::min(shape.height, shape.width)));
  for (std::size_t channel = 0; channel < shape.channels; ++channel)
    for (int byte = 0; byte < 256; ++byte)
      table_.push_back(static_cast<float>((byte / 255.0 - normalization.mean[channel]) /
                                          normalization.deviation[channel]));
}

bool ImageTransform::augments() const {
  return augmentation_.crop_padding > 0 || augmentation_.flip || augmentation_.cutout > 0;
}

void ImageTransform::normalise(std::span<const std::uint8_t> image, std::span<float> out) const {
  for (std::size_t i = 0; i < image.size(); i += shape_.channels)
    for (std::size_t c = 0; c < shape_.channels; ++c) out[i + c] = value_of(c, image[i + c]);
}

void ImageTransform::augment(std::span<const std::uint8_t> image, Generator generator,
                             std::span<float> out) const {
  const auto height = static_cast<std::ptrdiff_t>(shape_.height);
  const auto width = static_cast<std::ptrdiff_t>(shape_.width);
  const auto channels = shape_.channels;
  // All numbers are drawn whether or not they are used: switching one augmentation on or off leaves
  // the others as they were.
  const auto padding = static_cast<std::ptrdiff_t>(augmentation_.crop_padding);
  const auto offsets = static_cast<std::uint32_t>(2 * padding + 1);
  const std::ptrdiff_t shift_y = static_cast<std::ptrdiff_t>(generator.below(offsets)) - padding;
  const std::ptrdiff_t shift_x = static_cast<std::ptrdiff_t>(generator.below(offsets)) - padding;
  const bool flip = generator.below(2) == 1 && augmentation_.flip;
  const std::ptrdiff_t centre_y = generator.below(static_cast<std::uint32_t>(height));
  const std::ptrdiff_t centre_x = generator.below(static_cast<std::uint32_t>(width));
  const bool mirror = augmentation_.pad_mode == PadMode::kReflect;

  for (std::ptrdiff_t y = 0; y < height; ++y) {
    const std::ptrdiff_t from_y = mirror ? reflect(y + shift_y, height) : y + shift_y;
    for (std::ptrdiff_t x = 0; x < width; ++x) {
      const std::ptrdiff_t cut_x = (flip ? width - 1 - x : x) + shift_x;
      const std::ptrdiff_t from_x = mirror ? reflect(cut_x, width) : cut_x;
      float* pixel = &out[static_cast<std::size_t>(y * width + x) * channels];
      const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
      const std::uint8_t* from =
          inside ? &image[static_cast<std::size_t>(from_y * width + from_x) * channels] : nullptr;
      for (std::size_t c = 0; c < channels; ++c) pixel[c] = value_of(c, inside ? from[c] : 0);
    }
  }

  const auto side = static_cast<std::ptrdiff_t>(augmentation_.cutout);
  const std::ptrdiff_t top = centre_y - side / 2;
  const std::ptrdiff_t left = centre_x - side / 2;
  for (std::ptrdiff_t y = std::max<std::ptrdiff_t>(top, 0); y < std::min(top + side, height); ++y)
    for (std::ptrdiff_t x = std::max<std::ptrdiff_t>(left, 0); x < std::min(left + side, width);
         ++x)
      std::fill_n(&out[static_cast<std::size_t>(y * width + x) * channels], channels, 0.0F);
}

}  // namespace dlaunch::nn
