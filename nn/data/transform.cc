#include "nn/data/transform.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "nn/core/error.h"
#include "nn/data/augment_image.h"

namespace dlaunch::nn {
namespace {

void check(const ImageShape& shape, const Normalization& normalization,
           const Augmentation& augmentation) {
  if (shape.channels > static_cast<std::size_t>(kMostChannels))
    throw Error(fmt::format("images have {} channels; at most {} are possible", shape.channels,
                            kMostChannels));
  if (normalization.mean.size() != shape.channels ||
      normalization.deviation.size() != shape.channels)
    throw Error(fmt::format("normalization: {} means and {} deviations for {} channels",
                            normalization.mean.size(), normalization.deviation.size(),
                            shape.channels));
  if (augmentation.crop_padding >= std::min(shape.height, shape.width))
    throw Error(fmt::format("augmentation: padding {} is not below the image's side {}",
                            augmentation.crop_padding, std::min(shape.height, shape.width)));
}

}  // namespace

ImageTransform::ImageTransform(const ImageShape& shape, const Normalization& normalization,
                               const Augmentation& augmentation)
    : shape_(shape), augments_(!(augmentation == Augmentation{})) {
  check(shape, normalization, augmentation);
  plan_.height = static_cast<int>(shape.height);
  plan_.width = static_cast<int>(shape.width);
  plan_.channels = static_cast<int>(shape.channels);
  plan_.crop_padding = static_cast<int>(augmentation.crop_padding);
  plan_.pad_mode = augmentation.pad_mode;
  plan_.crop_batch = augmentation.crop_batch;
  plan_.flip = augmentation.flip;
  plan_.cutout = static_cast<int>(augmentation.cutout);
  plan_.brightness = static_cast<float>(augmentation.brightness);
  plan_.contrast = static_cast<float>(augmentation.contrast);
  for (std::size_t c = 0; c < shape.channels; ++c) {
    plan_.means[c] = static_cast<float>(255 * normalization.mean[c]);
    plan_.factors[c] = static_cast<float>(1 / (255 * normalization.deviation[c]));
  }
}

AugmentationPlan ImageTransform::plan(std::size_t side, std::size_t samples) const {
  AugmentationPlan plan = plan_;
  plan.out_height = side == 0 ? plan.height : static_cast<int>(side);
  plan.out_width = side == 0 ? plan.width : static_cast<int>(side);
  plan.half = samples / 2;
  return plan;
}

void ImageTransform::normalise(std::span<const std::uint8_t> images, std::span<float> out) const {
  normalise_images(plan_, images, out);
}

}  // namespace dlaunch::nn
