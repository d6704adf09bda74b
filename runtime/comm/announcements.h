// Announcements: how ranks find out that they are in different collectives when no message of
// theirs ever meets (both wait to receive, or wait for different ranks, or only send), and who has
// not come yet.
//
// A rank whose collective has stood still for a while tells every other rank which calls it made
// last on that lane, and for whom it waits. A rank that stands still itself listens, and compares
// what it hears with its own calls of the same numbers, past, present or to come. Waits go around
// in circles only among ranks that stand still, so every circle is found out by one of them; and a
// rank that announced nothing is one that the others wait for.
//
// Two ranks may also wait for each other in calls of different kinds: on different lanes (one in a
// blocking call, one in an asynchronous one), or one in a message (which it tells the message's
// other end alone) and one in a collective. They are found out at once where each is known to have
// no other thread that could still make the other's call (see Bystanders), else at their deadline.
// What a rank says of such a wait stays true until the other one moves, so that the one that hears
// it last can be sure of both. (But for a send, which is not judged before the deadline.)
//
// When a message met a wrong receive, the two calls may look alike and only follow different ones:
// clarify() makes the ranks announce their last calls, so that all learn which two differed.
//
// Announcements go over an endpoint of their own, which is driven by whichever thread stands still.
// Nothing is sent as long as calls move. Any thread may call any member.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/comm/call_signature.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// The lanes of a communicator: kinds of calls, each with an order of its own.
enum class LaneKind : std::uint8_t { kBlocking = 0, kAsync = 1, kHighPriority = 2 };
inline constexpr std::size_t kLaneKinds = 3;

class Announcements {
 public:
  explicit Announcements(std::unique_ptr<Endpoint> endpoint);

  /// This rank has made its call number `sequence` of a collective on a lane, which is to begin.
  void called(LaneKind lane, std::uint64_t sequence) {
    called_[static_cast<std::size_t>(lane)].store(sequence, std::memory_order_relaxed);
  }
  /// This rank has begun collective number `sequence` of a lane; numbers come without gaps, from 1.
  /// kMismatch if a peer announced another call of that number before.
  Status entered(LaneKind lane, std::uint64_t sequence, const MessageSignature& signature);

  /// A message to or from rank `peer` has been posted, or has been received well. Cheap.
  void sent(int peer) { count(peers_[static_cast<std::size_t>(peer)].sent); }
  void received(int peer) { count(peers_[static_cast<std::size_t>(peer)].received); }
  /// Whether somebody looks after messages on their lane.
  void set_messages_driven(bool driven) {
    messages_driven_.store(driven, std::memory_order_relaxed);
  }

  /// A call that stands still.
  struct Wait {
    LaneKind lane = LaneKind::kBlocking;
    std::uint64_t sequence = 0;    // of a collective; 0: a message
    MessageEnd message;            // if it is one
    std::vector<int> waiting_for;  // ranks
    bool alone = false;            // its caller waits for it, and no other thread could make a call
  };
  /// Takes in what the others told; first tells them of this wait, if that is `news`. kMismatch
  /// names both calls. To be called again from time to time.
  Status look_around(const Wait& wait, bool news);

  /// "rank 1 waits in recv f32[3] from rank 0 where rank 0 waits in blocking barrier", by what the
  /// others have told: of two ranks of which neither can go on unless another thread of the other
  /// one makes a call. Empty if there is no such rank.
  std::string opposed(const Wait& wait) const;

  /// `why` is the kMismatch that ended collective `sequence`. Tells the others this rank's calls up
  /// to that one and listens to theirs for a moment; returns a kMismatch that names the two calls
  /// that differed, or `why` if they did not come out.
  Status clarify(LaneKind lane, std::uint64_t sequence, const Status& why);

  /// `why` is the kPeerLost that ended a call. A rank that gives up in the middle of a message over
  /// TCP that its peer does not take can say nothing more there, but here. Listens for a moment;
  /// returns the reason that came, or `why`.
  Status last_words(const Status& why);

  /// What this rank called as collective `sequence`, if that is one of the last 256.
  std::optional<MessageSignature> own(LaneKind lane, std::uint64_t sequence) const;

  /// The other ranks that have announced neither collective `sequence` nor a later one.
  std::vector<int> silent(LaneKind lane, std::uint64_t sequence) const;

  /// What rank `rank` said since `since` that it waits for, and then what that one said: "rank 3
  /// waited in barrier #5 for rank 1, rank 1 in all_reduce #4 sum f32[10] ring for rank 2". Empty
  /// if it said nothing.
  std::string trail(int rank, Deadline::Clock::time_point since) const;

  /// Ends every clarify() and last_words() in progress, everywhere.
  void fail(const Status& why);

 private:
  struct Call {
    std::uint64_t sequence = 0;  // 0: none
    MessageSignature signature;
  };
  static constexpr std::size_t kToldCalls = 4;
  static constexpr std::size_t kToldRanks = 4;
  struct Payload {
    std::uint32_t lane = 0;
    std::uint8_t alone = 0;
    std::uint8_t in_message = 0;       // what is waited for: `message`, or the first of `calls`
    std::uint8_t messages_driven = 0;  // by whomever
    std::uint8_t waits = 0;            // for how many ranks, of which `waiting_for` has the first
    std::array<std::uint64_t, kLaneKinds> called{};  // the newest numbers
    std::array<Call, kToldCalls> calls;  // of that lane: the one waited for, then those before it
    MessageEnd message;
    std::array<std::int32_t, kToldRanks> waiting_for{};
    std::uint64_t sent = 0;  // messages to the rank that this is for, and those received from it
    std::uint64_t received = 0;
  };
  struct OwnLane {
    std::uint64_t last = 0;   // the newest collective entered
    std::vector<Call> calls;  // the newest, by sequence number modulo the size
  };
  struct Letter {
    Payload payload;
    Transfer send;
  };
  struct Peer {
    std::deque<Letter> letters;  // on their way to it, oldest first
    Transfer recv;
    Payload heard;  // where recv puts it
    bool listening = false;
    std::array<std::uint64_t, kLaneKinds> newest{};  // that it has called, as far as is known
    int unanswered = 0;  // announcements sent to it since it last announced anything
    Payload alone;       // the last that it announced as waiting alone
    Payload last;        // the last that it announced
    Deadline::Clock::time_point heard_at;
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> received{0};
  };
  struct Foreign {  // a call that this rank has not reached yet
    int peer = -1;
    std::size_t lane = 0;
    Call call;
  };

  // By several threads.
  static void count(std::atomic<std::uint64_t>& number) {
    number.fetch_add(1, std::memory_order_relaxed);
  }
  static void address(Transfer& transfer, int peer, Payload& payload);
  static std::string describe(const Payload& wait);
  static bool stuck(const Payload& wait, int waiter, const Payload& other_wait, int other);

  const Call* own_call(std::size_t lane, std::uint64_t sequence) const;
  Payload payload_for(const Wait& wait, int peer) const;
  void announce(const Wait& wait);
  void listen(int peer);
  Status take_in();
  Status hear(int peer, const Payload& heard);
  Status compare(int peer, std::size_t lane, const Call& theirs) const;
  Status compare_early(std::size_t lane, std::uint64_t sequence);
  bool stands_against(const Wait& wait, int peer, const Payload& theirs) const;
  std::string opposition(const Wait& wait, int peer, const Payload& theirs) const;
  Status crossed(const Wait& wait) const;

  const int rank_;
  mutable std::mutex mutex_;
  std::array<OwnLane, kLaneKinds> lanes_;
  std::deque<Peer> peers_;  // by rank; does not move
  std::atomic<bool> messages_driven_{false};
  std::array<std::atomic<std::uint64_t>, kLaneKinds> called_{};
  std::vector<Foreign> early_;
  Deadline next_listening_ = Deadline::after({});  // of look_around()
  std::unique_ptr<Endpoint> endpoint_;  // destroyed first: it refers to transfers of the above
};

}  // namespace dlaunch
