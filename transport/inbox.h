// Inbox: matches the messages of one peer with the receives posted for them.
//
// Either side may come first: a posted receive waits for its message, a message that nobody waits
// for is kept on the heap until its receive is posted, in arrival order per tag. All transports use
// it; it does no input or output. One thread at a time, that of its endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "transport/endpoint.h"

namespace dlaunch {

/// What the parts of one endpoint share.
struct EndpointContext {
  int rank = 0;
  int world_size = 1;
  SignaturePrinter describe = nullptr;  // nullptr: signatures are shown as numbers
  bool completed = false;               // a transfer has ended since poll() last returned

  void complete(Transfer& transfer, Status status) {
    transfer.complete(std::move(status));
    completed = true;
  }
};

class Inbox {
 public:
  /// A message that came before its receive.
  struct Message {
    MessageTag tag;
    MessageSignature signature;
    std::size_t bytes = 0;
    std::unique_ptr<std::byte[]> data;
  };

  /// `context` outlives the inbox.
  Inbox(EndpointContext& context, int peer) : context_(context), peer_(peer) {}

  /// Posts a receive. If its message is there already, the receive is completed; an error
  /// (kMismatch) has been given to the transfer too and must fail the endpoint.
  Status post(Transfer& receive);
  /// Takes in a whole message and completes the receive posted for it, or keeps a copy. kMismatch
  /// as in post(); kIo if there is no memory for the copy.
  Status deliver(const MessageTag& tag, const MessageSignature& signature, const std::byte* data,
                 std::size_t bytes);

  // The steps of the above, for a transport whose messages arrive in pieces.

  /// Removes and returns the first receive posted with `tag`, or nullptr.
  Transfer* take_receive(const MessageTag& tag);
  /// kMismatch, naming both, unless the message is what `receive` expects.
  Status check(const Transfer& receive, const MessageSignature& signature, std::size_t bytes) const;
  /// Makes room for a message that nobody waits for; nullptr if there is no memory. The pointer
  /// stays good until remove_message().
  Message* add_message(const MessageTag& tag, const MessageSignature& signature, std::size_t bytes);
  /// The first message with `tag`, or nullptr.
  Message* find_message(const MessageTag& tag);
  /// Removes a message.
  void remove_message(const Message* message);
  /// Posts a receive whose message is not there.
  void add_receive(Transfer& receive) { receives_.emplace(receive.tag, &receive); }

  bool has_receives() const { return !receives_.empty(); }
  /// Ends every posted receive with `why`.
  void fail_receives(const Status& why);

 private:
  struct TagOrder {
    bool operator()(const MessageTag& a, const MessageTag& b) const {
      return std::tie(a.sequence, a.context, a.step) < std::tie(b.sequence, b.context, b.step);
    }
  };

  EndpointContext& context_;
  int peer_;
  // Those of one tag in the order posted, and in arrival order.
  std::multimap<MessageTag, Transfer*, TagOrder> receives_;
  std::multimap<MessageTag, Message, TagOrder> messages_;
};

}  // namespace dlaunch
