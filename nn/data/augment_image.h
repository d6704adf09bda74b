// One image by the formulas of augmentation.h, on the CPU. Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "nn/data/augmentation.h"

namespace dlaunch::nn {

/// `image` is [height, width, channels] bytes, `out` [out_height, out_width, channels].
void augment_image(const AugmentationPlan& plan, const ImageDraw& draw,
                   std::span<const std::uint8_t> image, std::span<float> out);

/// Bytes to normalised floats, of one image or several.
void normalise_images(const AugmentationPlan& plan, std::span<const std::uint8_t> images,
                      std::span<float> out);

}  // namespace dlaunch::nn
