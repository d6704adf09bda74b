// The frames of the TCP transport: a header of 56 bytes, then `bytes` bytes of payload. All
// integers are little-endian.
//
//    0  u32  magic "DLF1"
//    4  u8   version
//    5  u8   kind
//    6  u16  zero
//    8  u64  tag.sequence
//   16  u32  tag.context
//   20  u32  tag.step
//   24  u64  signature.count
//   32  i32  signature.root
//   36  u8   signature.operation
//   37  u8   signature.dtype
//   38  u8   signature.reduce_op
//   39  u8   signature.algorithm
//   40  u64  signature.extra
//   48  u64  bytes
//
// A goodbye has no payload; it is the last frame of an orderly stream. An abort, the last frame of
// a stream that ends with a failure, carries a FailureNotice: u32 code, i32 about, i32 reporter,
// text. Both have a zero tag and an empty signature.
//
// Pure functions, from any thread. Decoding accepts nothing that encoding does not produce.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "transport/endpoint.h"
#include "transport/failure_notice.h"

namespace dlaunch {

inline constexpr std::size_t kFrameHeaderBytes = 56;

enum class FrameKind : std::uint8_t { kData = 1, kGoodbye = 2, kAbort = 3 };

struct FrameHeader {
  FrameKind kind = FrameKind::kData;
  MessageTag tag;
  MessageSignature signature;
  std::uint64_t bytes = 0;

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

using EncodedHeader = std::array<std::byte, kFrameHeaderBytes>;

EncodedHeader encode_header(const FrameHeader& header);
/// kProtocol, saying which field is wrong.
Result<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderBytes> encoded);

/// A whole goodbye frame.
std::vector<std::byte> encode_goodbye();
/// A whole abort frame, header and payload.
std::vector<std::byte> encode_abort(const FailureNotice& notice);
/// The payload of an abort frame. kProtocol if it is malformed or names ranks outside the world.
Result<FailureNotice> decode_notice(std::span<const std::byte> payload, int world_size);

}  // namespace dlaunch
