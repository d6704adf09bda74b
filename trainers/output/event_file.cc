#include "trainers/output/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <climits>
#include <filesystem>
#include <span>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "runtime/base/crc32.h"

namespace dlaunch {
namespace {

/// TFRecord's: so that the CRC of data that holds CRCs is not a bad one.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

/// Little-endian, on any machine.
template <typename Integer>
std::string fixed(Integer value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(value); ++i)
    bytes += static_cast<char>((value >> (8 * i)) & 0xFFU);
  return bytes;
}

// Fields of protocol buffers: the number and the wire type, then the value.
enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>((value & 0x7FU) | 0x80U);
  return bytes + static_cast<char>(value);
}

std::string key(std::uint32_t field, WireType type) {
  return varint(field << 3U | type);
}

std::string nested(std::uint32_t field, std::string_view content) {
  return key(field, kLengthDelimited) + varint(content.size()) + std::string(content);
}

/// The fields that every Event has.
std::string event_head(std::uint64_t step) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return key(1, kFixed64) + fixed(std::bit_cast<std::uint64_t>(now)) + key(2, kVarint) +
         varint(step);
}

std::string summary_value(const Scalar& scalar) {
  const auto value = std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value));
  return nested(1, nested(1, scalar.tag) + key(2, kFixed32) + fixed(value));
}

/// As TensorBoard expects it; files are read in the order of their names.
std::string file_name() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return fmt::format("events.out.tfevents.{:010}.{:06}.{}.{}", microseconds / 1'000'000,
                     microseconds % 1'000'000, host.data(), ::getpid());
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  return crc_of<kCrc32c>(std::as_bytes(std::span(bytes)));
}

EventFile::EventFile(const std::string& directory) {
  file_ = std::make_unique<RecordFile>(
      (std::filesystem::path(directory) / file_name()).string(),
      RecordFile::Words{"TensorBoard's events",
                        "set output.directory, or output.tensorboard to \"\""});
}

void EventFile::restart_at(std::uint64_t step) {
  constexpr std::uint64_t kStart = 1;  // SessionLog.SessionStatus
  append(event_head(step) + nested(7, key(1, kVarint) + varint(kStart)));
}

void EventFile::write(std::uint64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) summary += summary_value(scalar);
  append(event_head(step) + nested(5, summary));
}

void EventFile::finish() {
  if (file_ != nullptr) file_->finish();
}

void EventFile::append(const std::string& event) {
  if (file_ == nullptr) return;
  if (!std::exchange(begun_, true)) append(event_head(0) + nested(3, "brain.Event:2"));
  const std::string length = fixed<std::uint64_t>(event.size());
  file_->append(length + fixed(masked_crc(length)) + event + fixed(masked_crc(event)));
}

}  // namespace dlaunch
