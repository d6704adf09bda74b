// Announcements: how ranks find out that they are in different collectives when no message of
// theirs ever meets (both wait to receive, or wait for different ranks), and who has not come yet.
//
// A rank whose collective has stood still for a while tells every other rank which call it is in:
// sequence number and signature. A rank that stands still itself listens, and compares what it
// hears with its own call of the same number, past, present or to come. Waits go around in circles
// only among ranks that stand still, so every circle is found out by one of them; and a rank that
// announced nothing is one that the others wait for. Nothing is sent as long as collectives move.
//
// Belongs to one lane; called from the thread that drives its endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/base/status.h"
#include "transport/endpoint.h"

namespace dlaunch {

class Announcements {
 public:
  /// The endpoint outlives no transfer of this object: it is destroyed first.
  explicit Announcements(Endpoint& endpoint);

  /// This rank has begun its collective number `sequence`; numbers come without gaps, from 1.
  /// kMismatch if a peer announced another call of that number before.
  Status entered(std::uint64_t sequence, const MessageSignature& signature);

  /// Tells the others, and listens to them from now on.
  void announce(std::uint64_t sequence, const MessageSignature& signature);

  /// Takes in what the others announced. kMismatch names both calls.
  Status check();

  /// What this rank called as collective `sequence`, one of the last 256.
  const MessageSignature& own(std::uint64_t sequence) const;

  /// The other ranks that have announced neither collective `sequence` nor a later one.
  std::vector<int> silent(std::uint64_t sequence) const;

 private:
  struct Payload {
    std::uint64_t sequence = 0;
    MessageSignature signature;
  };
  struct Peer {
    Transfer recv;
    Payload heard;  // where recv puts it
    bool listening = false;
    std::uint64_t newest = 0;  // the highest number announced
    int unanswered = 0;        // announcements sent to it before it announced anything
  };
  struct Outgoing {
    Payload payload;
    std::vector<Transfer> sends;
  };
  struct Foreign {  // a call that this rank has not reached yet
    int peer = -1;
    Payload payload;
  };

  void listen(int peer);
  Status compare(int peer, const Payload& theirs) const;

  Endpoint& endpoint_;
  std::uint64_t last_ = 0;             // the newest collective entered
  std::vector<MessageSignature> own_;  // the newest calls, by sequence number modulo the size
  std::deque<Peer> peers_;             // by rank; does not move
  std::deque<Outgoing> outgoing_;      // oldest first
  std::vector<Foreign> early_;
};

}  // namespace dlaunch
