// MessageReceiver: the messages of one peer whose payloads arrive in pieces. Each goes straight to
// the receive posted for it, or is kept until there is one; a receive posted while its message is
// arriving takes over the rest in place.
//
// It does no input or output. One thread at a time, that of the endpoint. After an error nothing
// more is received.
#pragma once

#include <cstddef>
#include <span>

#include "transport/inbox.h"

namespace dlaunch {

class MessageReceiver {
 public:
  /// `context` outlives the receiver.
  MessageReceiver(EndpointContext& context, int peer)
      : context_(context), peer_(peer), inbox_(context, peer) {}

  /// A message begins. kMismatch if it is not what its receive expects, kIo without memory.
  Status begin(const MessageTag& tag, const MessageSignature& signature, std::size_t bytes);
  /// Where its next bytes belong.
  std::span<std::byte> destination() const { return {destination_, remaining_}; }
  /// `bytes` bytes have been put there. The last of them completes the message.
  void advance(std::size_t bytes);
  /// A whole message at once; errors as of begin().
  Status deliver(const MessageTag& tag, const MessageSignature& signature,
                 std::span<const std::byte> data) {
    return inbox_.deliver(tag, signature, data.data(), data.size());
  }

  /// True while a message is arriving.
  bool in_message() const { return in_message_; }

  /// Posts a receive; it may be complete on return. Errors as in Inbox::post().
  Status post(Transfer& receive);
  /// The first message with `tag` that is here or arriving and waits for its receive, or nullptr.
  const Inbox::Message* find_message(const MessageTag& tag) const {
    return inbox_.find_message(tag);
  }
  /// True while a posted receive waits for bytes of this peer, or for those of any.
  bool has_receives() const { return receive_ != nullptr || inbox_.has_receives(); }
  /// True while nothing more should be taken in, as in Inbox::is_full().
  bool is_full() const { return receive_ == nullptr && inbox_.is_full(message_); }
  void lift_limit() { inbox_.lift_limit(); }
  /// Ends every receive posted from this peer, also the one that is arriving, with `why`.
  void fail_receives(const Status& why);

 private:
  EndpointContext& context_;
  int peer_;
  Inbox inbox_;

  // The message that is arriving goes to a posted receive or to one that is kept.
  bool in_message_ = false;
  std::byte* destination_ = nullptr;
  std::size_t remaining_ = 0;
  Transfer* receive_ = nullptr;
  Inbox::Message* message_ = nullptr;
};

}  // namespace dlaunch
