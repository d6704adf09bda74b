#include "nn/data/transform.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "nn/core/error.h"
#include "runtime/base/multiversion.h"

namespace dlaunch::nn {
namespace {

/// Mirrors a coordinate into [0, size): -1 becomes 1, size becomes size - 2.
std::ptrdiff_t reflect(std::ptrdiff_t position, std::ptrdiff_t size) {
  if (position < 0) return -position;
  if (position >= size) return 2 * size - 2 - position;
  return position;
}

/// A difference and a product round alike on every CPU, unlike what may become a fused operation.
DLAUNCH_MULTIVERSION void normalise_bytes(std::size_t count, const std::uint8_t* __restrict bytes,
                                          const float* __restrict means,
                                          const float* __restrict factors, float* __restrict out) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i)
    out[i] = (static_cast<float>(bytes[i]) - means[i]) * factors[i];
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
  for (std::size_t i = 0; i < shape.size(); ++i) {
    means_.push_back(static_cast<float>(255 * normalization.mean[i % shape.channels]));
    factors_.push_back(static_cast<float>(1 / (255 * normalization.deviation[i % shape.channels])));
  }
}

bool ImageTransform::augments() const {
  return augmentation_.crop_padding > 0 || augmentation_.flip || augmentation_.cutout > 0;
}

void ImageTransform::normalise(std::span<const std::uint8_t> images, std::span<float> out) const {
  for (std::size_t i = 0; i < images.size(); i += means_.size())
    normalise_bytes(means_.size(), &images[i], means_.data(), factors_.data(), &out[i]);
}

/// Row `y` of the image after crop and flip, as stored.
void ImageTransform::crop_row(std::span<const std::uint8_t> image, std::ptrdiff_t y,
                              const Crop& crop, std::span<std::uint8_t> out) const {
  const auto height = static_cast<std::ptrdiff_t>(shape_.height);
  const auto width = static_cast<std::ptrdiff_t>(shape_.width);
  const auto channels = static_cast<std::ptrdiff_t>(shape_.channels);
  const bool mirror = augmentation_.pad_mode == PadMode::kReflect;
  const std::ptrdiff_t from_y = mirror ? reflect(y + crop.y, height) : y + crop.y;
  if (from_y < 0 || from_y >= height) {
    std::fill(out.begin(), out.end(), std::uint8_t{0});
    return;
  }
  const std::uint8_t* const row = &image[static_cast<std::size_t>(from_y * width * channels)];
  for (std::ptrdiff_t x = 0; x < width; ++x) {
    const std::ptrdiff_t cut_x = (crop.flip ? width - 1 - x : x) + crop.x;
    const std::ptrdiff_t from_x = mirror ? reflect(cut_x, width) : cut_x;
    std::uint8_t* const pixel = &out[static_cast<std::size_t>(x * channels)];
    if (from_x >= 0 && from_x < width)
      std::copy_n(row + from_x * channels, channels, pixel);
    else
      std::fill_n(pixel, channels, std::uint8_t{0});
  }
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

  std::vector<std::uint8_t> cropped(image.size());
  const std::size_t row_size = shape_.width * channels;
  for (std::size_t y = 0; y < shape_.height; ++y)
    crop_row(image, static_cast<std::ptrdiff_t>(y), {shift_y, shift_x, flip},
             std::span(cropped).subspan(y * row_size, row_size));
  normalise(cropped, out);

  const auto side = static_cast<std::ptrdiff_t>(augmentation_.cutout);
  const std::ptrdiff_t top = centre_y - side / 2;
  const std::ptrdiff_t left = centre_x - side / 2;
  for (std::ptrdiff_t y = std::max<std::ptrdiff_t>(top, 0); y < std::min(top + side, height); ++y)
    for (std::ptrdiff_t x = std::max<std::ptrdiff_t>(left, 0); x < std::min(left + side, width);
         ++x)
      std::fill_n(&out[static_cast<std::size_t>(y * width + x) * channels], channels, 0.0F);
}

}  // namespace dlaunch::nn
