#include "nn/data/image_format.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

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

constexpr std::uint8_t kProgressiveFrame = 0xc2;
constexpr std::uint8_t kHuffmanTables = 0xc4;
constexpr std::uint8_t kEndOfImage = 0xd9;
constexpr std::uint8_t kStartOfScan = 0xda;
constexpr std::uint8_t kQuantizationTables = 0xdb;

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

/// The tables that scans are decoded with. A scan that names one which is not there is damage that
/// a decoder may miss: stb_image 2.27 goes by whatever its memory holds.
class JpegTables {
 public:
  /// What is wrong with a segment, after those before it; nothing if that is "".
  std::string take(std::uint8_t marker, Bytes content) {
    if (marker == kHuffmanTables && !take_huffman(content)) return "impossible Huffman tables";
    if (marker == kQuantizationTables && !take_quantization(content))
      return "impossible quantization tables";
    if (is_frame_header(marker) && marker > kProgressiveFrame)
      return "it is coded without losses, in layers or arithmetically, which is not read";
    if (is_frame_header(marker) && !take_frame(marker, content)) return "impossible frame header";
    if (marker == kStartOfScan && has_frame() && !are_there_for(content))
      return "a scan without its tables";
    return "";
  }
  bool has_frame() const { return has_frame_; }

 private:
  struct Component {
    std::uint8_t id = 0;
    std::uint8_t quantization = 0;
  };
  using Present = std::array<bool, 4>;  // by a table's number

  /// Each: its class (DC, AC) and number, how many codes there are of each length from 1 to 16
  /// bits, their values.
  bool take_huffman(Bytes content) {
    constexpr std::size_t kLengths = 16;
    while (!content.empty()) {
      if (content.size() < 1 + kLengths) return false;
      const std::uint8_t kind = content[0] >> 4;
      const std::uint8_t number = content[0] & 15;
      if (kind > 1 || number >= dc_.size()) return false;
      std::size_t values = 0;
      std::size_t room = 1;  // codes of a length that do not begin with a shorter one
      for (const std::uint8_t count : content.subspan(1, kLengths)) {
        room *= 2;
        if (count > room) return false;
        room -= count;
        values += count;
      }
      if (values > 256 || content.size() < 1 + kLengths + values) return false;
      (kind == 0 ? dc_ : ac_)[number] = true;
      content = content.subspan(1 + kLengths + values);
    }
    return true;
  }

  /// Each: the width of its numbers (1 byte, 2 bytes) and its number, 64 numbers.
  bool take_quantization(Bytes content) {
    while (!content.empty()) {
      const std::size_t size = 1 + (content[0] >> 4 == 0 ? 64 : 128);
      const std::uint8_t number = content[0] & 15;
      if (content[0] >> 4 > 1 || number >= quantization_.size() || content.size() < size)
        return false;
      quantization_[number] = true;
      content = content.subspan(size);
    }
    return true;
  }

  /// Precision, height, width, then of each component its id, its sampling and its table.
  bool take_frame(std::uint8_t marker, Bytes content) {
    constexpr std::size_t kBefore = 6;
    if (content.size() < kBefore || content.size() != kBefore + 3 * std::size_t{content[5]})
      return false;
    has_frame_ = true;
    progressive_ = marker == kProgressiveFrame;
    components_.clear();
    for (std::size_t at = kBefore; at < content.size(); at += 3)
      components_.push_back({content[at], content[at + 2]});
    return true;
  }

  /// Of each component its id and its tables; then which coefficients the scan has, and which bits
  /// of them.
  bool are_there_for(Bytes scan) const {
    if (scan.empty() || scan.size() != 4 + 2 * std::size_t{scan[0]}) return false;
    const bool begins_at_dc = scan[scan.size() - 3] == 0;
    const bool refines = scan.back() >> 4 != 0;
    const bool needs_dc = !progressive_ || (begins_at_dc && !refines);
    const bool needs_ac = !progressive_ || !begins_at_dc;
    const auto has = [](const Present& tables, unsigned number) {
      return number < tables.size() && tables[number];
    };
    for (std::size_t at = 1; at + 3 < scan.size(); at += 2) {
      const auto component = std::ranges::find(components_, scan[at], &Component::id);
      if (component == components_.end() || !has(quantization_, component->quantization))
        return false;
      if (needs_dc && !has(dc_, scan[at + 1] >> 4)) return false;
      if (needs_ac && !has(ac_, scan[at + 1] & 15)) return false;
    }
    return true;
  }

  Present dc_{};
  Present ac_{};
  Present quantization_{};
  std::vector<Component> components_;
  bool has_frame_ = false;
  bool progressive_ = false;
};

std::string jpeg_damage(Bytes file) {
  JpegTables tables;
  bool has_scan = false;
  for (JpegSegments segments(file); segments.next();) {
    if (segments.marker() == kEndOfImage) return has_scan ? "" : "there is no image in it";
    std::string damage = tables.take(segments.marker(), segments.content());
    if (!damage.empty()) return damage;
    has_scan = has_scan || (segments.marker() == kStartOfScan && tables.has_frame());
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
