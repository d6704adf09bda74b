// ShmLink: the way between an endpoint and a peer of its host, two rings in shared memory. Never
// blocks; wakes the peer if it sleeps.
//
// A message of some length that lies where the peer can read it is not copied into the ring but
// offered; the send is done once the peer has fetched it.
//
// One thread at a time, that of the endpoint. Internal to the shared-memory transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "transport/message_receiver.h"
#include "transport/shm/ring.h"
#include "transport/shm/shared_group.h"

namespace dlaunch {

class ShmLink {
 public:
  /// `member` is the peer's place in `group`. Context and group outlive the link.
  ShmLink(EndpointContext& context, int peer, SharedGroup& group, int member, RingMemory out,
          RingMemory in);

  int peer() const { return peer_; }

  /// Sends as much as the ring takes; the rest is queued.
  void send(Transfer& transfer);
  /// Completes the sends that the peer has fetched.
  void complete_fetched();
  /// The same, and goes on with queued sends.
  void flush();
  bool has_sends() const { return first_ < queue_.size() || !offered_.empty(); }

  /// Posts a receive; errors as in Inbox::post().
  Status post(Transfer& receive) { return receiver_.post(receive); }
  const Inbox::Message* find_message(const MessageTag& tag) const {
    return receiver_.find_message(tag);
  }
  /// True if there is something to read, and not too much kept of what was (Inbox::is_full()).
  /// Cheap.
  bool has_input() {
    is_opened_ = is_opened_ || group_.is_opened_by(member_);
    if (!is_opened_) return false;
    return (fetching_ || in_.look() != RingReader::State::kEmpty) && !receiver_.is_full();
  }
  /// However much is kept, all that is there is to be read from now on.
  void lift_limit() { receiver_.lift_limit(); }
  /// Takes in what is there, but not for ever. kMismatch, kIo as MessageReceiver; kPeerLost if the
  /// peer has gone with what it had offered; kProtocol for what no peer of ours writes.
  Status read();
  /// True if the peer has given up, and with that what it had offered: there is nothing to be read
  /// behind it.
  bool is_withdrawn() const { return fetching_ && in_.offers_withdrawn(); }

  /// True while a posted receive or a queued send waits for the peer.
  bool awaited() const { return receiver_.has_receives() || has_sends(); }
  void fail_receives(const Status& why) { receiver_.fail_receives(why); }
  /// Ends all its transfers with `why`.
  void fail_transfers(const Status& why);

 private:
  struct Outgoing {
    Transfer* transfer;
    std::size_t written = 0;
    bool begun = false;
  };

  bool has_queue() const { return first_ < queue_.size(); }
  void pop_sent();
  bool write_offer(Transfer& transfer);
  bool write_some(Outgoing& outgoing);
  bool write_fragment(Outgoing& outgoing);
  void put_line(RingLineKind kind, std::uint8_t inline_bytes, const RingLineContent& content);
  Status take(const RingReader::Line& line);
  Status take_offer(const RingReader::Line& line);
  Status take_fragment(std::uint64_t bytes);
  Status fetch();

  EndpointContext& context_;
  int peer_;
  SharedGroup& group_;
  int member_;
  RingWriter out_;
  RingReader in_;
  MessageReceiver receiver_;
  std::size_t fragment_bytes_;  // of a fragment at most
  bool has_opened_ = false;     // this end has sent something, ...
  bool is_opened_ = false;      // ... the peer has; before, nobody touches the pages of a ring

  std::vector<Outgoing> queue_;  // sends in order; those before first_ are done
  std::size_t first_ = 0;
  std::deque<Transfer*> offered_;  // in order
  std::uint64_t fetched_ = 0;      // of all offers made

  // The offer that is being fetched.
  bool fetching_ = false;
  bool from_heap_ = false;
  std::uint64_t source_ = 0;  // where its rest lies
};

}  // namespace dlaunch
