#include "transport/message_receiver.h"

#include <string>
#include <utility>

#include "runtime/base/copy_memory.h"

namespace dlaunch {

Status MessageReceiver::begin(const MessageTag& tag, const MessageSignature& signature,
                              std::size_t bytes) {
  receive_ = inbox_.take_receive(tag);
  if (receive_ != nullptr) {
    if (Status matched = inbox_.check(*receive_, signature, bytes); !matched.ok()) {
      context_.complete(*std::exchange(receive_, nullptr), matched);
      return matched;
    }
    destination_ = receive_->data;
  } else {
    message_ = inbox_.add_message(tag, signature, bytes);
    if (message_ == nullptr) {
      return Status(StatusCode::kIo, "no memory to keep a message of " + std::to_string(bytes) +
                                         " bytes from rank " + std::to_string(peer_) +
                                         " until it is received");
    }
    destination_ = message_->data.get();
  }
  in_message_ = true;
  remaining_ = bytes;
  advance(0);
  return Status();
}

void MessageReceiver::advance(std::size_t bytes) {
  destination_ += bytes;
  remaining_ -= bytes;
  if (remaining_ > 0) return;
  in_message_ = false;
  message_ = nullptr;
  if (receive_ != nullptr) context_.complete(*std::exchange(receive_, nullptr), Status());
}

Status MessageReceiver::post(Transfer& receive) {
  const Inbox::Message* message = inbox_.find_message(receive.tag);
  if (message == nullptr || message != message_) return inbox_.post(receive);

  // The message is arriving: what is here is copied, the rest goes straight to its place.
  if (Status matched = inbox_.check(receive, message->signature, message->bytes); !matched.ok()) {
    context_.complete(receive, matched);
    return matched;
  }
  const std::size_t arrived = message->bytes - remaining_;
  copy_memory(receive.data, message->data.get(), arrived);
  destination_ = receive.data + arrived;
  receive_ = &receive;
  message_ = nullptr;
  inbox_.remove_message(message);
  return Status();
}

void MessageReceiver::fail_receives(const Status& why) {
  if (receive_ != nullptr) {
    // Its buffer may go away at any time now.
    context_.complete(*std::exchange(receive_, nullptr), why);
    destination_ = nullptr;
    remaining_ = 0;
  }
  inbox_.fail_receives(why);
}

}  // namespace dlaunch
