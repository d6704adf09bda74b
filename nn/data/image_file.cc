#include "nn/data/image_file.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>

#include <spdlog/fmt/fmt.h>

// The decoder becomes part of this file alone, so that it meets no other copy in the user's
// program.
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
// Zeros wherever a damaged file leaves something undecided: the same pixels each time, no stray
// index.
#define STBI_MALLOC(size) std::calloc(1, size)
#define STBI_REALLOC(pointer, size) std::realloc(pointer, size)
#define STBI_FREE(pointer) std::free(pointer)
#include <stb_image.h>

#include "nn/data/image_format.h"
#include "nn/data/triangle_filter.h"

namespace dlaunch::nn {
namespace {

constexpr std::size_t kChannels = 3;
constexpr std::size_t kMostlyEnough = std::size_t{16} << 10;  // bytes of a file for its header
constexpr std::size_t kMostFile = std::size_t{1} << 30;       // bytes
constexpr std::size_t kMostPixels = std::size_t{1} << 28;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw DataError(
      fmt::format("{}: cannot read the image: {}; replace or remove the file", path, reason));
}

/// The first `most` bytes of a file.
std::vector<std::uint8_t> read_beginning(const std::string& path, std::size_t most) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail(path, error.message());
  std::vector<std::uint8_t> bytes(std::min<std::uintmax_t>(size, most));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) fail(path, std::generic_category().message(errno));
  return bytes;
}

/// Which source positions make up one output position, and how much each counts.
struct Taps {
  std::size_t first = 0;
  std::vector<float> weights;
};

std::vector<Taps> make_taps(std::size_t from, std::size_t to) {
  std::vector<Taps> taps(to);
  for (std::size_t i = 0; i < to; ++i) {
    const auto axis =
        taps_of<double>(static_cast<int>(i), static_cast<int>(from), static_cast<int>(to));
    taps[i].first = static_cast<std::size_t>(axis.first);
    double sum = 0;
    for (int position = axis.first; position < axis.last; ++position) {
      taps[i].weights.push_back(static_cast<float>(axis.weight(position)));
      sum += static_cast<double>(taps[i].weights.back());
    }
    for (float& weight : taps[i].weights)
      weight = static_cast<float>(static_cast<double>(weight) / sum);
  }
  return taps;
}

}  // namespace

bool is_image_name(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  std::string ending = name.substr(dot + 1);
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* known : {"png", "jpg", "jpeg"})
    if (ending == known) return true;
  return false;
}

ImageShape read_image_shape(const std::string& path) {
  std::optional<ImageShape> shape;
  std::vector<std::uint8_t> beginning;
  // Before the size there may be much else (the previews of cameras).
  for (std::size_t most = kMostlyEnough; most <= kMostFile; most *= 8) {
    beginning = read_beginning(path, most);
    shape = image_shape_in(beginning);
    if (shape || beginning.size() < most || !is_jpeg(beginning)) break;
  }
  if (!shape) {
    const std::string damage = image_damage(beginning);
    fail(path, damage.empty() ? "no image size in its header" : damage);
  }
  if (shape->height > kMostPixels / shape->width)
    fail(path, fmt::format("{} x {} pixels, at most {} are read", shape->height, shape->width,
                           kMostPixels));
  return *shape;
}

std::vector<std::uint8_t> read_image(const std::string& path, const ImageShape& expected) {
  const std::vector<std::uint8_t> file = read_beginning(path, kMostFile + 1);
  if (file.size() > kMostFile) fail(path, fmt::format("more than {} bytes", kMostFile));
  if (const std::string damage = image_damage(file); !damage.empty()) fail(path, damage);
  int width = 0, height = 0, channels = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(file.data(), static_cast<int>(file.size()), &width, &height, &channels,
                            kChannels),
      stbi_image_free);
  if (pixels == nullptr) {
    const char* reason = stbi_failure_reason();
    fail(path, reason != nullptr ? reason : "unknown format");
  }
  const ImageShape shape{static_cast<std::size_t>(height), static_cast<std::size_t>(width),
                         kChannels};
  if (shape != expected)
    throw DataError(fmt::format("{}: the image was {} x {} and is now {} x {}", path,
                                expected.height, expected.width, height, width));
  return {pixels.get(), pixels.get() + shape.size()};
}

void resize_image(std::span<const std::uint8_t> from, const ImageShape& from_shape,
                  std::span<std::uint8_t> to, const ImageShape& to_shape) {
  const std::size_t channels = from_shape.channels;
  const std::vector<Taps> columns = make_taps(from_shape.width, to_shape.width);
  const std::vector<Taps> rows = make_taps(from_shape.height, to_shape.height);
  // A row of the result at a time: however long and thin the image is, little memory.
  const std::size_t from_row = from_shape.width * channels;
  std::vector<float> lowered(from_row);
  for (std::size_t y = 0; y < to_shape.height; ++y) {
    std::ranges::fill(lowered, 0.0F);
    for (std::size_t i = 0; i < rows[y].weights.size(); ++i) {
      const std::uint8_t* const row = from.data() + (rows[y].first + i) * from_row;
      for (std::size_t k = 0; k < from_row; ++k)
        lowered[k] += rows[y].weights[i] * static_cast<float>(row[k]);
    }
    for (std::size_t x = 0; x < to_shape.width; ++x)
      for (std::size_t c = 0; c < channels; ++c) {
        float sum = 0.5F;  // rounds
        for (std::size_t i = 0; i < columns[x].weights.size(); ++i)
          sum += columns[x].weights[i] * lowered[(columns[x].first + i) * channels + c];
        to[(y * to_shape.width + x) * channels + c] =
            static_cast<std::uint8_t>(std::clamp(sum, 0.0F, 255.0F));
      }
  }
}

}  // namespace dlaunch::nn
