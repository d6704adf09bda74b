// Inbox: matches the messages of one peer with the receives posted for them.
//
// Either side may come first: a posted receive waits for its message, a message that nobody waits
// for is kept on the heap until its receive is posted, in arrival order per tag. All transports use
// it; it does no input or output. One thread at a time, that of its endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <tuple>

#include "transport/endpoint.h"

namespace dlaunch {

/// How much is kept of one peer's messages, unless an endpoint is made for less or more.
inline constexpr std::size_t kDefaultKeptBytes = std::size_t{64} << 20;

/// What the parts of one endpoint share.
struct EndpointContext {
  int rank = 0;
  int world_size = 1;
  SignaturePrinter describe = nullptr;         // nullptr: signatures are shown as numbers
  std::size_t kept_bytes = kDefaultKeptBytes;  // see Inbox::is_full()
  bool completed = false;                      // a transfer has ended since poll() last returned

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
  Inbox(EndpointContext& context, int peer)
      : context_(context), peer_(peer), limit_(context.kept_bytes) {}

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
  /// True while so much is kept that nothing more should be taken in: the rest is to stay with its
  /// sender. Not while a receive is posted, whose message may be behind that rest. `arriving`, a
  /// message that is kept and not yet complete, does not count, so that it is completed if it began
  /// in time; nullptr: there is none.
  bool is_full(const Message* arriving) const {
    const std::size_t besides = arriving == nullptr ? 0 : cost(*arriving);
    return kept_bytes_ - besides >= limit_ && receives_.empty();
  }
  /// It is never full from now on: for what a peer that is gone has left.
  void lift_limit() { limit_ = std::numeric_limits<std::size_t>::max(); }
  /// Ends every posted receive with `why`.
  void fail_receives(const Status& why);

 private:
  // What keeping a message takes besides its bytes, about.
  static constexpr std::size_t kOverhead = 160;
  static std::size_t cost(const Message& message) { return message.bytes + kOverhead; }

  struct TagOrder {
    bool operator()(const MessageTag& a, const MessageTag& b) const {
      return std::tie(a.sequence, a.context, a.step) < std::tie(b.sequence, b.context, b.step);
    }
  };

  EndpointContext& context_;
  int peer_;
  std::size_t limit_;
  std::size_t kept_bytes_ = 0;  // what messages_ take
  // Those of one tag in the order posted, and in arrival order.
  std::multimap<MessageTag, Transfer*, TagOrder> receives_;
  std::multimap<MessageTag, Message, TagOrder> messages_;
};

}  // namespace dlaunch
