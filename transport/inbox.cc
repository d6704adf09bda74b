#include "transport/inbox.h"

#include <new>
#include <string>
#include <utility>

#include "runtime/base/copy_memory.h"

namespace dlaunch {
namespace {

std::string in_words(SignaturePrinter describe, const MessageSignature& signature,
                     std::size_t bytes) {
  std::string words;
  if (describe != nullptr) {
    words = describe(signature);
  } else {
    words = "operation " + std::to_string(signature.operation) + " dtype " +
            std::to_string(signature.dtype) + " reduction " + std::to_string(signature.reduce_op) +
            " algorithm " + std::to_string(signature.algorithm) + " root " +
            std::to_string(signature.root) + " count " + std::to_string(signature.count);
  }
  return words + " (" + std::to_string(bytes) + " bytes)";
}

}  // namespace

Status Inbox::post(Transfer& receive) {
  const Message* message = find_message(receive.tag);
  if (message == nullptr) {
    add_receive(receive);
    return Status();
  }
  Status matched = check(receive, message->signature, message->bytes);
  if (matched.ok()) copy_memory(receive.data, message->data.get(), message->bytes);
  remove_message(message);
  context_.complete(receive, matched);
  return matched;
}

Status Inbox::deliver(const MessageTag& tag, const MessageSignature& signature,
                      const std::byte* data, std::size_t bytes) {
  if (Transfer* receive = take_receive(tag); receive != nullptr) {
    Status matched = check(*receive, signature, bytes);
    if (matched.ok()) copy_memory(receive->data, data, bytes);
    context_.complete(*receive, matched);
    return matched;
  }
  Message* message = add_message(tag, signature, bytes);
  if (message == nullptr) {
    return Status(StatusCode::kIo, "no memory to keep a message of " + std::to_string(bytes) +
                                       " bytes until it is received");
  }
  copy_memory(message->data.get(), data, bytes);
  return Status();
}

Transfer* Inbox::take_receive(const MessageTag& tag) {
  if (Transfer* const receive = receives_.take(tag); receive != nullptr) return receive;
  Transfer* const receive = context_.receives_of_any.take(tag);
  if (receive != nullptr) receive->peer = peer_;
  return receive;
}

Status Inbox::check(const Transfer& receive, const MessageSignature& signature,
                    std::size_t bytes) const {
  if (receive.signature == signature && receive.bytes == bytes) return Status();
  // In terms of ranks, not of "this side": all ranks will read this text.
  return Status(StatusCode::kMismatch,
                "rank " + std::to_string(peer_) + " sent " +
                    in_words(context_.describe, signature, bytes) + " where rank " +
                    std::to_string(context_.rank) + " expects " +
                    in_words(context_.describe, receive.signature, receive.bytes));
}

Inbox::Message* Inbox::add_message(const MessageTag& tag, const MessageSignature& signature,
                                   std::size_t bytes) {
  Message message{.tag = tag,
                  .signature = signature,
                  .bytes = bytes,
                  .data = nullptr,
                  .arrival = ++context_.kept_so_far};
  if (bytes > 0) {
    message.data.reset(new (std::nothrow) std::byte[bytes]);
    if (message.data == nullptr) return nullptr;
  }
  kept_bytes_ += cost(message);
  return &messages_.emplace(tag, std::move(message))->second;
}

const Inbox::Message* Inbox::find_message(const MessageTag& tag) const {
  const auto first = messages_.lower_bound(tag);
  return first == messages_.end() || first->first != tag ? nullptr : &first->second;
}

void Inbox::remove_message(const Message* message) {
  auto found = messages_.lower_bound(message->tag);
  while (&found->second != message) ++found;
  kept_bytes_ -= cost(*message);
  messages_.erase(found);
}

void Inbox::fail_receives(const Status& why) {
  receives_.end_all([&](Transfer& receive) { context_.complete(receive, why); });
}

}  // namespace dlaunch
