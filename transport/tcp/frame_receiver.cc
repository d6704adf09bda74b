#include "transport/tcp/frame_receiver.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace dlaunch {

FrameReceiver::FrameReceiver(EndpointContext& context, int peer)
    : context_(context), peer_(peer), inbox_(context, peer) {}

Status FrameReceiver::consume(std::size_t direct, std::span<const std::byte> staged) {
  destination_ += direct;
  remaining_ -= direct;
  if (in_payload_ && remaining_ == 0) DLAUNCH_RETURN_IF_ERROR(finish_frame());

  while (!staged.empty()) {
    if (ended()) {
      return Status(StatusCode::kProtocol, "malformed stream: bytes after its last frame");
    }
    if (in_payload_) {
      const std::size_t taken = std::min(remaining_, staged.size());
      std::memcpy(destination_, staged.data(), taken);
      destination_ += taken;
      remaining_ -= taken;
      staged = staged.subspan(taken);
      if (remaining_ == 0) DLAUNCH_RETURN_IF_ERROR(finish_frame());
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
  header_ = header;
  in_payload_ = true;
  remaining_ = header.bytes;
  destination_ = nullptr;
  if (header.kind == FrameKind::kData) {
    DLAUNCH_RETURN_IF_ERROR(start_message());
  } else {
    notice_bytes_.resize(header.bytes);
    destination_ = notice_bytes_.data();
  }
  return remaining_ == 0 ? finish_frame() : Status();
}

Status FrameReceiver::start_message() {
  receive_ = inbox_.take_receive(header_.tag);
  if (receive_ != nullptr) {
    if (Status matched = inbox_.check(*receive_, header_.signature, header_.bytes); !matched.ok()) {
      context_.complete(*std::exchange(receive_, nullptr), matched);
      return matched;
    }
    destination_ = receive_->data;
    return Status();
  }
  message_ = inbox_.add_message(header_.tag, header_.signature, header_.bytes);
  if (message_ == nullptr) {
    return Status(StatusCode::kIo, "no memory to keep a message of " +
                                       std::to_string(header_.bytes) + " bytes from rank " +
                                       std::to_string(peer_) + " until it is received");
  }
  destination_ = message_->data.get();
  return Status();
}

Status FrameReceiver::finish_frame() {
  in_payload_ = false;
  message_ = nullptr;
  switch (header_.kind) {
    case FrameKind::kData:
      if (receive_ != nullptr) context_.complete(*std::exchange(receive_, nullptr), Status());
      return Status();
    case FrameKind::kGoodbye:
      goodbye_ = true;
      return Status();
    case FrameKind::kAbort:
      break;
  }
  Result<FailureNotice> notice = decode_notice(notice_bytes_, context_.world_size);
  if (!notice.ok()) return notice.status();
  notice_ = *std::move(notice);
  return Status();
}

Status FrameReceiver::post(Transfer& receive) {
  const Inbox::Message* message = inbox_.find_message(receive.tag);
  if (message == nullptr || message != message_) return inbox_.post(receive);

  // The message is arriving: what is here is copied, the rest goes straight to its place.
  if (Status matched = inbox_.check(receive, message->signature, message->bytes); !matched.ok()) {
    context_.complete(receive, matched);
    return matched;
  }
  const std::size_t arrived = message->bytes - remaining_;
  std::memcpy(receive.data, message->data.get(), arrived);
  destination_ = receive.data + arrived;
  receive_ = &receive;
  message_ = nullptr;
  inbox_.remove_message(message);
  return Status();
}

void FrameReceiver::fail_receives(const Status& why) {
  if (receive_ != nullptr) {
    // Its buffer may go away at any time now.
    context_.complete(*std::exchange(receive_, nullptr), why);
    destination_ = nullptr;
    remaining_ = 0;
  }
  inbox_.fail_receives(why);
}

}  // namespace dlaunch
