// FrameReceiver: turns the byte stream of one peer into received messages. A state machine without
// input or output of its own, so that it can be tested and fuzzed alone.
//
// The owner reads from the socket into destination() first and then into a staging buffer of its
// own, and hands both to consume(). The bulk of a payload thus lands where it was posted; only what
// happens to share the staging buffer with a header is copied.
//
// One thread at a time, that of the endpoint. After an error, or once goodbye() or notice() says
// that the stream has ended, nothing more is consumed.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "transport/failure_notice.h"
#include "transport/message_receiver.h"
#include "transport/tcp/frame.h"

namespace dlaunch {

class FrameReceiver {
 public:
  /// `context` outlives the receiver.
  FrameReceiver(EndpointContext& context, int peer);

  /// Where the next bytes of the stream belong; empty while a header is awaited.
  std::span<std::byte> destination() {
    return in_notice_ ? std::span(notice_bytes_).subspan(notice_received_)
                      : messages_.destination();
  }

  /// Takes in bytes just read: `direct` of them have been put at destination(), the rest, which
  /// follows them in the stream, is `staged`. kProtocol for bytes that no peer of ours sends,
  /// kMismatch for a message that is not what its receive expects, kIo without memory.
  Status consume(std::size_t direct, std::span<const std::byte> staged);

  /// Posts a receive; it may be complete on return. Errors as in Inbox::post().
  Status post(Transfer& receive) { return messages_.post(receive); }

  const Inbox::Message* find_message(const MessageTag& tag) const {
    return messages_.find_message(tag);
  }
  /// True while a posted receive waits for bytes of this peer, or for those of any.
  bool has_receives() const { return messages_.has_receives(); }
  /// True while nothing more should be read, as in Inbox::is_full().
  bool is_full() const { return messages_.is_full(); }
  void lift_limit() { messages_.lift_limit(); }
  /// Ends every receive posted from this peer, also the one that is arriving, with `why`.
  void fail_receives(const Status& why) { messages_.fail_receives(why); }

  /// True between frames: a stream that ends elsewhere was cut off.
  bool at_boundary() const { return !in_payload() && header_bytes_ == 0; }
  /// The peer has said goodbye: nothing more comes.
  bool goodbye() const { return goodbye_; }
  /// The peer has failed, and why.
  const std::optional<FailureNotice>& notice() const { return notice_; }

 private:
  Status start_frame(const FrameHeader& header);
  Status advance(std::size_t bytes);
  bool in_payload() const { return in_notice_ || messages_.in_message(); }
  bool ended() const { return goodbye_ || notice_.has_value(); }

  EndpointContext& context_;
  MessageReceiver messages_;

  EncodedHeader partial_header_{};
  std::size_t header_bytes_ = 0;  // of partial_header_

  bool in_notice_ = false;  // the payload that is arriving is that of an abort
  std::vector<std::byte> notice_bytes_;
  std::size_t notice_received_ = 0;

  bool goodbye_ = false;
  std::optional<FailureNotice> notice_;
};

}  // namespace dlaunch
