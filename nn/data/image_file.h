// Reading and resizing of single image files (PNG and JPEG, through stb_image). Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nn/data/dataset.h"

namespace dlaunch::nn {

/// Whether the name ends like an image's that can be read.
bool is_image_name(const std::string& name);

/// Size of the image in a file, from its header, as three channels. Throws DataError.
ImageShape read_image_shape(const std::string& path);

/// The image as RGB bytes, HWC. Throws DataError, also if the size is not `expected`.
std::vector<std::uint8_t> read_image(const std::string& path, const ImageShape& expected);

/// Linear interpolation; when shrinking, over all pixels that are covered (a triangle filter as
/// wide as the scale, so that nothing aliases). Both images have the same number of channels.
void resize_image(std::span<const std::uint8_t> from, const ImageShape& from_shape,
                  std::span<std::uint8_t> to, const ImageShape& to_shape);

}  // namespace dlaunch::nn
