// Image files, through our checks of PNG's chunks and JPEG's segments and then stb_image's decoder:
// each is either read or refused with a DataError.
//
// Input: a byte, then a file. If the byte is odd, the checksums of its PNG chunks are made right:
// else hardly anything would ever get to the decoder.
#include <span>
#include <string>

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb_image_write.h>

#include "nn/data/image_file.h"
#include "runtime/base/crc32.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"

namespace dlaunch::fuzz {
namespace {

constexpr std::size_t kMostPixels = 1 << 20;  // no more are decoded: memory is set aside for them

std::size_t big_endian(std::string_view bytes) {
  std::size_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

// Each chunk: the length of its data, four letters, the data, their checksum.
std::string with_right_checksums(std::string png) {
  for (std::size_t at = 8; at + 12 <= png.size();) {
    const std::string_view chunk = std::string_view(png).substr(at);
    const std::size_t length = big_endian(chunk.substr(0, 4));
    if (length > chunk.size() - 12) break;
    const std::string_view content = chunk.substr(4, 4 + length);
    const std::uint32_t crc = crc_of<kCrc32>(std::as_bytes(std::span(content)));
    for (std::size_t i = 0; i < 4; ++i)
      png[at + 8 + length + i] = static_cast<char>(crc >> (24 - 8 * i));
    at += 12 + length;
  }
  return png;
}

void read(const std::string& content) {
  const MemoryFile file(content);
  try {
    const nn::ImageShape shape = nn::read_image_shape(file.path());
    require(shape.size() > 0 && shape.channels == 3, "an image has pixels of three channels");
    if (shape.height * shape.width > kMostPixels) return;
    require(nn::read_image(file.path(), shape).size() == shape.size(), "it is read as a whole");
  } catch (const nn::DataError& refused) {
    require(*refused.what() != '\0', "a refusal has a reason");
  }
}

void append(void* text, void* data, int size) {
  static_cast<std::string*>(text)->append(static_cast<const char*>(data),
                                          static_cast<std::size_t>(size));
}

}  // namespace

std::vector<std::string> seed_inputs() {
  std::vector<std::string> inputs;
  const std::string pixels = "the pixels of an image: 9 of 4 channels at the most";
  for (int channels = 1; channels <= 4; ++channels) {
    std::string& png = inputs.emplace_back("\1");
    stbi_write_png_to_func(append, &png, 3, 3, channels, pixels.data(), 3 * channels);
    std::string& jpeg = inputs.emplace_back("\1");
    stbi_write_jpg_to_func(append, &jpeg, 3, 3, channels, pixels.data(), 90);
  }
  return inputs;
}

}  // namespace dlaunch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dlaunch::fuzz::Input input(data, size);
  const bool repairs = input.take_byte() % 2 == 1;
  std::string file(input.rest());
  dlaunch::fuzz::read(repairs ? dlaunch::fuzz::with_right_checksums(std::move(file)) : file);
  return 0;
}
