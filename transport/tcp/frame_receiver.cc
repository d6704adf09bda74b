#include "transport/tcp/frame_receiver.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dlaunch {

FrameReceiver::FrameReceiver(EndpointContext& context, int peer)
    : context_(context), messages_(context, peer) {}

Status FrameReceiver::consume(std::size_t direct, std::span<const std::byte> staged) {
  if (direct > 0) DLAUNCH_RETURN_IF_ERROR(advance(direct));

  while (!staged.empty()) {
    if (ended()) {
      return Status(StatusCode::kProtocol, "malformed stream: bytes after its last frame");
    }
    if (in_payload()) {
      const std::span<std::byte> rest = destination();
      const std::size_t taken = std::min(rest.size(), staged.size());
      std::memcpy(rest.data(), staged.data(), taken);
      staged = staged.subspan(taken);
      DLAUNCH_RETURN_IF_ERROR(advance(taken));
      continue;
    }
    const std::size_t taken = std::min(kFrameHeaderBytes - header_bytes_, staged.size());
    std::memcpy(partial_header_.data() + header_bytes_, staged.data(), taken);
    header_bytes_ += taken;
    staged = staged.subspan(taken);
    if (header_bytes_ < kFrameHeaderBytes) break;
    header_bytes_ = 0;
    const Result<FrameHeader> header = decode_header(partial_header_);
    if (!header.ok()) return header.status();
    DLAUNCH_RETURN_IF_ERROR(start_frame(*header));
  }
  return Status();
}

Status FrameReceiver::start_frame(const FrameHeader& header) {
  switch (header.kind) {
    case FrameKind::kData:
      return messages_.begin(header.tag, header.signature, header.bytes);
    case FrameKind::kGoodbye:
      goodbye_ = true;
      return Status();
    case FrameKind::kAbort:
      break;
  }
  in_notice_ = true;  // its payload is never empty
  notice_bytes_.resize(header.bytes);
  return Status();
}

// `bytes` bytes have been put at destination().
Status FrameReceiver::advance(std::size_t bytes) {
  if (!in_notice_) {
    messages_.advance(bytes);
    return Status();
  }
  notice_received_ += bytes;
  if (notice_received_ < notice_bytes_.size()) return Status();
  in_notice_ = false;
  Result<FailureNotice> notice = decode_notice(notice_bytes_, context_.world_size);
  if (!notice.ok()) return notice.status();
  notice_ = *std::move(notice);
  return Status();
}

}  // namespace dlaunch
