// What files of images (PNG and JPEG) say of themselves, read without a decoder: its size, and
// whether the file is whole. stb_image trusts what it is given: from version 2.28 on it takes a
// JPEG file that ends too early for an image, before that it writes outside its tables for a wrong
// one and reads outside them for one that is not there, and it does not look at checksums. Any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "nn/data/dataset.h"

namespace dlaunch::nn {

/// Whether a file that begins with these bytes is, or is to be, a JPEG file.
bool is_jpeg(std::span<const std::uint8_t> beginning);

/// The size of the image in a file that begins with these bytes, as three channels. None if they do
/// not say.
std::optional<ImageShape> image_shape_in(std::span<const std::uint8_t> beginning);

/// What is wrong with a whole file; empty: nothing. PNG: the chunks (ISO/IEC 15948, 5) and their
/// checksums; JPEG: the marker segments (ITU T.81, B.1 and B.2), the tables that its scans name,
/// the end.
std::string image_damage(std::span<const std::uint8_t> file);

}  // namespace dlaunch::nn
