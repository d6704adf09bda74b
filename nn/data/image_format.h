// What files of images (PNG and JPEG) say of themselves, read without a decoder: its size, and
// whether the file is whole. stb_image trusts what it is given: it takes a file that ends too early
// for an image, up to its version 2.27 it writes outside its tables for a wrong one, and it does
// not look at checksums. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "nn/data/dataset.h"

namespace dlaunch::nn {

/// The size of the image in a file that begins with these bytes, as three channels. None if they do
/// not say.
std::optional<ImageShape> image_shape_in(std::span<const std::uint8_t> beginning);

/// What is wrong with a whole file; empty: nothing. PNG: the chunks (ISO/IEC 15948, 5) and their
/// checksums; JPEG: the marker segments (ITU T.81, B.1 and B.2), Huffman tables, the end.
std::string image_damage(std::span<const std::uint8_t> file);

}  // namespace dlaunch::nn
