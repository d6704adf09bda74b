// Announcements: how ranks find out that they are in different collectives when no message of
// theirs ever meets (both wait to receive, or wait for different ranks, or only send), and who has
// not come yet.
//
// A rank whose collective has stood still for a while tells every other rank which calls it made
// last on that lane. A rank that stands still itself listens, and compares what it hears with its
// own calls of the same numbers, past, present or to come. Waits go around in circles only among
// ranks that stand still, so every circle is found out by one of them; and a rank that announced
// nothing is one that the others wait for. Ranks that wait for each other on different lanes (one
// in a blocking call, one in an asynchronous one) are found out where each is known to have no
// other thread that could still make the other's call.
//
// When a message met a wrong receive, the two calls may look alike and only follow different ones:
// clarify() makes the ranks announce their last calls, so that all learn which two differed.
//
// Announcements go over an endpoint of their own, which is driven by whichever thread stands still.
// Nothing is sent as long as collectives move. Any thread may call any member.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/status.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// The lanes of a communicator: kinds of calls, each with an order of its own.
enum class LaneKind : std::uint8_t { kBlocking = 0, kAsync = 1, kHighPriority = 2 };
inline constexpr std::size_t kLaneKinds = 3;

class Announcements {
 public:
  explicit Announcements(std::unique_ptr<Endpoint> endpoint);

  /// This rank has begun collective number `sequence` of a lane; numbers come without gaps, from 1.
  /// kMismatch if a peer announced another call of that number before.
  Status entered(LaneKind lane, std::uint64_t sequence, const MessageSignature& signature);

  /// A collective that stands still.
  struct Wait {
    LaneKind lane = LaneKind::kBlocking;
    std::uint64_t sequence = 0;
    bool alone = false;  // its caller waits for it, and no other thread uses the communicator
  };
  /// Takes in what the others told; first tells them of this wait, if that is `news`. kMismatch
  /// names both calls. To be called again from time to time.
  Status look_around(const Wait& wait, bool news);

  /// `why` is the kMismatch that ended collective `sequence`. Tells the others this rank's calls up
  /// to that one and listens to theirs for a moment; returns a kMismatch that names the two calls
  /// that differed, or `why` if they did not come out.
  Status clarify(LaneKind lane, std::uint64_t sequence, const Status& why);

  /// What this rank called as collective `sequence`, one of the last 256.
  MessageSignature own(LaneKind lane, std::uint64_t sequence) const;

  /// The other ranks that have announced neither collective `sequence` nor a later one.
  std::vector<int> silent(LaneKind lane, std::uint64_t sequence) const;

  /// Ends every clarify() in progress, everywhere.
  void fail(const Status& why);

 private:
  struct Call {
    std::uint64_t sequence = 0;  // 0: none
    MessageSignature signature;
  };
  static constexpr std::size_t kToldCalls = 4;
  struct Payload {
    std::uint32_t lane = 0;
    std::uint32_t alone = 0;
    std::array<std::uint64_t, kLaneKinds> entered{};  // the newest numbers
    std::array<Call, kToldCalls> calls;  // of that lane: the one waited for, then those before it
  };
  struct OwnLane {
    std::uint64_t last = 0;   // the newest collective entered
    std::vector<Call> calls;  // the newest, by sequence number modulo the size
  };
  struct Peer {
    Transfer recv;
    Payload heard;  // where recv puts it
    bool listening = false;
    std::array<std::uint64_t, kLaneKinds> newest{};  // that it has entered, as far as is known
    int unanswered = 0;  // announcements sent to it since it last announced anything
    Payload waits;       // the last that it announced as waiting alone
  };
  struct Outgoing {
    Payload payload;
    std::vector<Transfer> sends;
  };
  struct Foreign {  // a call that this rank has not reached yet
    int peer = -1;
    std::size_t lane = 0;
    Call call;
  };

  const MessageSignature& signature(std::size_t lane, std::uint64_t sequence) const;
  void announce(std::size_t lane, std::uint64_t sequence, bool alone);
  void listen(int peer);
  Status take_in();
  Status hear(int peer, const Payload& heard);
  Status compare(int peer, std::size_t lane, const Call& theirs) const;
  Status compare_early(std::size_t lane, std::uint64_t sequence);
  Status crossed(const Wait& wait) const;

  const int rank_;
  mutable std::mutex mutex_;
  std::array<OwnLane, kLaneKinds> lanes_;
  std::deque<Peer> peers_;         // by rank; does not move
  std::deque<Outgoing> outgoing_;  // oldest first
  std::vector<Foreign> early_;
  std::unique_ptr<Endpoint> endpoint_;  // destroyed first: it refers to transfers of the above
};

}  // namespace dlaunch
