// Image files for tests of dtrain.
#pragma once

#include <cstddef>
#include <random>
#include <string>

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb_image_write.h>

namespace dlaunch::testing {

/// A PNG file of noise; of 96 x 96 pixels or more it is larger than what is read of a file to know
/// its size.
inline std::string noise_png(int side, std::mt19937& random) {
  std::string pixels(std::size_t{3} * static_cast<std::size_t>(side * side), '\0');
  for (char& value : pixels) value = static_cast<char>(random());
  std::string file;
  stbi_write_png_to_func(
      [](void* out, void* data, int size) {
        static_cast<std::string*>(out)->append(static_cast<char*>(data),
                                               static_cast<std::size_t>(size));
      },
      &file, side, side, 3, pixels.data(), side * 3);
  return file;
}

}  // namespace dlaunch::testing
