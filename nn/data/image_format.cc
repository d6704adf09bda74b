#include "nn/data/image_format.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "runtime/base/crc32.h"

namespace dlaunch::nn {
namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::array<std::uint8_t, 8> kPngSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr std::size_t kChunkFrame = 12;  // bytes of a chunk that are not its data

std::size_t big_endian(Bytes bytes) {
  std::size_t value = 0;
  for (const std::uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

bool is_png(Bytes file) {
  return file.size() >= kPngSignature.size() &&
         std::ranges::equal(file.first(kPngSignature.size()), kPngSignature);
}

/// As the standard demands; others have a chunk of their own there, and pixels of their own kind.
bool begins_with_size(Bytes png) {
  constexpr std::string_view kSize = "IHDR";
  return png.size() >= 24 && std::ranges::equal(png.subspan(12, 4), kSize);
}

std::optional<ImageShape> shape_of(std::size_t height, std::size_t width) {
  if (height == 0 || width == 0) return std::nullopt;
  return ImageShape{height, width, 3};
}

// --- PNG

std::string png_damage(Bytes file) {
  if (file.size() >= 24 && !begins_with_size(file)) return "its first chunk is not IHDR";
  for (Bytes rest = file.subspan(kPngSignature.size()); rest.size() >= kChunkFrame;) {
    const std::size_t length = big_endian(rest.first(4));
    if (length > rest.size() - kChunkFrame) break;
    const Bytes content = rest.subspan(4, 4 + length);
    if (crc_of<kCrc32>(std::as_bytes(content)) != big_endian(rest.subspan(8 + length, 4)))
      return "wrong checksum";
    constexpr std::string_view kEnd = "IEND";
    if (std::ranges::equal(content.first(4), kEnd)) return "";
    rest = rest.subspan(kChunkFrame + length);
  }
  return "the file is cut off";
}

// --- JPEG

constexpr std::uint8_t kHuffmanTables = 0xc4;
constexpr std::uint8_t kEndOfImage = 0xd9;
constexpr std::uint8_t kStartOfScan = 0xda;

bool stands_alone(std::uint8_t marker) {
  return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
}

bool is_frame_header(std::uint8_t marker) {
  const bool another_kind = marker == kHuffmanTables || marker == 0xc8 || marker == 0xcc;
  return marker >= 0xc0 && marker <= 0xcf && !another_kind;
}

/// Goes from marker to marker.
class JpegSegments {
 public:
  explicit JpegSegments(Bytes file) : rest_(file.subspan(2)) {}

  /// False at the end of the bytes, also if a segment is not there as a whole.
  bool next() {
    while (rest_.size() >= 2 && (rest_[0] != 0xff || rest_[1] == 0xff || rest_[1] == 0))
      rest_ = rest_.subspan(1);  // what a scan has coded, or padding
    if (rest_.size() < 2) return false;
    marker_ = rest_[1];
    rest_ = rest_.subspan(2);
    content_ = {};
    if (stands_alone(marker_) || marker_ == kEndOfImage) return true;
    if (rest_.size() < 2) return false;
    const std::size_t length = big_endian(rest_.first(2));
    if (length < 2 || length > rest_.size()) return false;
    content_ = rest_.subspan(2, length - 2);
    rest_ = rest_.subspan(length);
    return true;
  }
  std::uint8_t marker() const { return marker_; }
  Bytes content() const { return content_; }

 private:
  Bytes rest_;
  Bytes content_;
  std::uint8_t marker_ = 0;
};

/// Each table: its number, how many codes there are of each length from 1 to 16 bits, their values.
bool are_huffman_tables(Bytes content) {
  constexpr std::size_t kLengths = 16;
  while (!content.empty()) {
    if (content.size() < 1 + kLengths) return false;
    std::size_t values = 0;
    std::size_t room = 1;  // codes of a length that do not begin with a shorter one
    for (const std::uint8_t count : content.subspan(1, kLengths)) {
      room *= 2;
      if (count > room) return false;
      room -= count;
      values += count;
    }
    if (values > 256 || content.size() < 1 + kLengths + values) return false;
    content = content.subspan(1 + kLengths + values);
  }
  return true;
}

std::string jpeg_damage(Bytes file) {
  bool has_frame = false;
  bool has_scan = false;
  for (JpegSegments segments(file); segments.next();) {
    const std::uint8_t marker = segments.marker();
    if (marker == kEndOfImage) return has_scan ? "" : "there is no image in it";
    if (marker == kHuffmanTables && !are_huffman_tables(segments.content()))
      return "impossible Huffman tables";
    has_frame = has_frame || is_frame_header(marker);
    has_scan = has_scan || (marker == kStartOfScan && has_frame);
  }
  return "the file is cut off";
}

std::optional<ImageShape> jpeg_shape(Bytes beginning) {
  for (JpegSegments segments(beginning); segments.next();) {
    if (!is_frame_header(segments.marker())) continue;
    const Bytes content = segments.content();  // precision, height, width, ...
    if (content.size() < 5) return std::nullopt;
    return shape_of(big_endian(content.subspan(1, 2)), big_endian(content.subspan(3, 2)));
  }
  return std::nullopt;
}

}  // namespace

bool is_jpeg(Bytes file) {
  return file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff;
}

std::optional<ImageShape> image_shape_in(Bytes beginning) {
  if (is_jpeg(beginning)) return jpeg_shape(beginning);
  if (!is_png(beginning) || !begins_with_size(beginning)) return std::nullopt;
  return shape_of(big_endian(beginning.subspan(20, 4)), big_endian(beginning.subspan(16, 4)));
}

std::string image_damage(Bytes file) {
  if (is_png(file)) return png_damage(file);
  if (is_jpeg(file)) return jpeg_damage(file);
  return "neither PNG nor JPEG";
}

}  // namespace dlaunch::nn
