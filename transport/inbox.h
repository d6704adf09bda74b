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

#include "transport/endpoint.h"
#include "transport/posted_receives.h"

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
  PostedReceives receives_of_any;              // from kAnyRank
  std::uint64_t kept_so_far = 0;               // messages that came before their receives

  void complete(Transfer& transfer, Status status) {
    transfer.complete(std::move(status));
    completed = true;
  }
  void fail_receives_of_any(const Status& why) {
    receives_of_any.end_all([&](Transfer& receive) { complete(receive, why); });
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
    std::uint64_t arrival = 0;  // the lower came the earlier, of all peers' messages
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

  /// Removes and returns the first receive posted with `tag`, or nullptr. One from kAnyRank is one
  /// from this peer from then on.
  Transfer* take_receive(const MessageTag& tag);
  /// kMismatch, naming both, unless the message is what `receive` expects.
  Status check(const Transfer& receive, const MessageSignature& signature, std::size_t bytes) const;
  /// Makes room for a message that nobody waits for; nullptr if there is no memory. The pointer
  /// stays good until remove_message().
  Message* add_message(const MessageTag& tag, const MessageSignature& signature, std::size_t bytes);
  /// The first message with `tag`, or nullptr.
  const Message* find_message(const MessageTag& tag) const;
  /// Removes a message.
  void remove_message(const Message* message);
  /// Posts a receive whose message is not there.
  void add_receive(Transfer& receive) { receives_.add(receive); }

  /// That a message of this peer may meet.
  bool has_receives() const { return !receives_.empty() || !context_.receives_of_any.empty(); }
  /// True while so much is kept that nothing more should be taken in: the rest is to stay with its
  /// sender. Not while a receive is posted, whose message may be behind that rest. `arriving`, a
  /// message that is kept and not yet complete, does not count, so that it is completed if it began
  /// in time; nullptr: there is none.
  bool is_full(const Message* arriving) const {
    const std::size_t besides = arriving == nullptr ? 0 : cost(*arriving);
    return kept_bytes_ - besides >= limit_ && !has_receives();
  }
  /// It is never full from now on: for what a peer that is gone has left.
  void lift_limit() { limit_ = std::numeric_limits<std::size_t>::max(); }
  /// Ends every receive posted from this peer with `why`.
  void fail_receives(const Status& why);

 private:
  // What keeping a message takes besides its bytes, about.
  static constexpr std::size_t kOverhead = 160;
  static std::size_t cost(const Message& message) { return message.bytes + kOverhead; }

  EndpointContext& context_;
  int peer_;
  std::size_t limit_;
  std::size_t kept_bytes_ = 0;  // what messages_ take
  PostedReceives receives_;
  std::multimap<MessageTag, Message, TagOrder> messages_;  // those of one tag in arrival order
};

}  // namespace dlaunch
