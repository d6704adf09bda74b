#include "transport/tcp/frame.h"

#include <algorithm>
#include <cstring>

#include "transport/tcp/little_endian.h"

namespace dlaunch {
namespace {

constexpr std::uint32_t kFrameMagic = 0x31464c44;  // "DLF1"
constexpr std::uint8_t kFrameVersion = 1;
constexpr std::size_t kNoticeFixedBytes = 12;

Status malformed(const std::string& what) {
  return Status(StatusCode::kProtocol, "malformed frame: " + what);
}

Status check_payload_size(const FrameHeader& header) {
  const std::uint64_t bytes = header.bytes;
  switch (header.kind) {
    case FrameKind::kData:
      if (bytes > kMaxMessageBytes) {
        return malformed("a message of " + std::to_string(bytes) + " bytes");
      }
      return Status();
    case FrameKind::kGoodbye:
      return bytes == 0 ? Status() : malformed("a goodbye with a payload");
    case FrameKind::kAbort:
      break;
  }
  if (bytes < kNoticeFixedBytes || bytes > kNoticeFixedBytes + kMaxNoticeText) {
    return malformed("an abort of " + std::to_string(bytes) + " bytes");
  }
  return Status();
}

}  // namespace

EncodedHeader encode_header(const FrameHeader& header) {
  EncodedHeader encoded;
  std::byte* to = encoded.data();
  to = store_little_endian(to, kFrameMagic);
  to = store_little_endian(to, kFrameVersion);
  to = store_little_endian(to, static_cast<std::uint8_t>(header.kind));
  to = store_little_endian(to, std::uint16_t{0});
  to = store_little_endian(to, header.tag.sequence);
  to = store_little_endian(to, header.tag.context);
  to = store_little_endian(to, header.tag.step);
  to = store_little_endian(to, header.signature.count);
  to = store_little_endian(to, header.signature.root);
  to = store_little_endian(to, header.signature.operation);
  to = store_little_endian(to, header.signature.dtype);
  to = store_little_endian(to, header.signature.reduce_op);
  to = store_little_endian(to, header.signature.algorithm);
  to = store_little_endian(to, header.signature.extra);
  store_little_endian(to, header.bytes);
  return encoded;
}

Result<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderBytes> encoded) {
  const std::byte* from = encoded.data();
  if (load_little_endian<std::uint32_t>(from) != kFrameMagic)
    return malformed("no frame starts here");
  if (const auto version = load_little_endian<std::uint8_t>(from); version != kFrameVersion) {
    return malformed("version " + std::to_string(version) + ", expected " +
                     std::to_string(kFrameVersion));
  }
  const auto kind = load_little_endian<std::uint8_t>(from);
  if (kind < 1 || kind > 3) return malformed("kind " + std::to_string(kind));
  if (load_little_endian<std::uint16_t>(from) != 0) return malformed("reserved bytes in use");

  FrameHeader header;
  header.kind = static_cast<FrameKind>(kind);
  header.tag.sequence = load_little_endian<std::uint64_t>(from);
  header.tag.context = load_little_endian<std::uint32_t>(from);
  header.tag.step = load_little_endian<std::uint32_t>(from);
  header.signature.count = load_little_endian<std::uint64_t>(from);
  header.signature.root = load_little_endian<std::int32_t>(from);
  header.signature.operation = load_little_endian<std::uint8_t>(from);
  header.signature.dtype = load_little_endian<std::uint8_t>(from);
  header.signature.reduce_op = load_little_endian<std::uint8_t>(from);
  header.signature.algorithm = load_little_endian<std::uint8_t>(from);
  header.signature.extra = load_little_endian<std::uint64_t>(from);
  header.bytes = load_little_endian<std::uint64_t>(from);

  if (header.signature.root < -1) {
    return malformed("root " + std::to_string(header.signature.root));
  }
  const bool control = header.kind != FrameKind::kData;
  if (control && (header.tag != MessageTag() || header.signature != MessageSignature())) {
    return malformed("a tag or signature where none belongs");
  }
  DLAUNCH_RETURN_IF_ERROR(check_payload_size(header));
  return header;
}

std::vector<std::byte> encode_goodbye() {
  const EncodedHeader header = encode_header({.kind = FrameKind::kGoodbye});
  return {header.begin(), header.end()};
}

std::vector<std::byte> encode_abort(const FailureNotice& notice) {
  const std::size_t text_bytes = std::min(notice.text.size(), kMaxNoticeText);
  std::vector<std::byte> frame(kFrameHeaderBytes + kNoticeFixedBytes + text_bytes);
  const EncodedHeader header =
      encode_header({.kind = FrameKind::kAbort, .bytes = kNoticeFixedBytes + text_bytes});
  std::byte* to = frame.data();
  std::memcpy(to, header.data(), header.size());
  to += header.size();
  to = store_little_endian(to, static_cast<std::uint32_t>(notice.code));
  to = store_little_endian(to, static_cast<std::int32_t>(notice.about));
  to = store_little_endian(to, static_cast<std::int32_t>(notice.reporter));
  std::memcpy(to, notice.text.data(), text_bytes);
  return frame;
}

Result<FailureNotice> decode_notice(std::span<const std::byte> payload, int world_size) {
  if (payload.size() < kNoticeFixedBytes) return malformed("an abort without a reason");
  const std::byte* from = payload.data();
  const auto code = load_little_endian<std::uint32_t>(from);
  const auto about = load_little_endian<std::int32_t>(from);
  const auto reporter = load_little_endian<std::int32_t>(from);
  const auto text = payload.subspan(kNoticeFixedBytes);
  return FailureNotice::from_peer(
      code, about, reporter, {reinterpret_cast<const char*>(text.data()), text.size()}, world_size);
}

}  // namespace dlaunch
