// Endpoint: one rank's end of a transport - messages between this rank and every other one.
//
// This is the seam between collectives and the wire (TCP, loopback for tests, shared memory). It
// knows ranks and bytes; what the bytes mean is in the signature, which it carries but does not
// read beyond comparing it.
//
// Threads: an endpoint is driven by one thread at a time, the one that calls start_*() and poll();
// nothing runs behind its back. A blocking collective therefore runs on its caller's thread, and
// asynchronous work has an endpoint of its own that a progress thread drives. Only wake() and
// failure() may be called from other threads.
//
// Matching: a message goes to the posted receive with the same (peer, tag). A message that arrives
// before its receive is posted is kept until it is, in arrival order per (peer, tag). If too much
// is kept of a peer's, the rest waits with that peer until a receive from it is posted. A receive
// from kAnyRank takes the message with its tag that came first, of whichever peer; a message that
// comes later goes to a receive from its peer if there is one, and else to the first from kAnyRank.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/any_rank.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// No message is longer.
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 38;

/// What a message belongs to. The upper layers choose the meaning; two messages are for each other
/// when both fields are equal.
struct MessageTag {
  std::uint64_t sequence = 0;  // collective number, or the user's tag of a point-to-point message
  std::uint32_t context = 0;   // communicator and kind of traffic
  std::uint32_t step = 0;      // step within the collective's plan

  friend bool operator==(const MessageTag&, const MessageTag&) = default;
};

/// Describes the operation that a message belongs to. Sent with every message and compared with
/// what the receiver expects, so that ranks that call different things find out. 24 bytes on the
/// wire.
struct MessageSignature {
  std::uint64_t count = 0;     // elements of the whole operation
  std::int32_t root = -1;      // -1: none
  std::uint8_t operation = 0;  // collective kind
  std::uint8_t dtype = 0;
  std::uint8_t reduce_op = 0;
  std::uint8_t algorithm = 0;
  std::uint64_t extra = 0;  // a hash of what does not fit (unequal counts, user reductions)

  friend bool operator==(const MessageSignature&, const MessageSignature&) = default;
};

/// One send or receive in flight. Owned by whoever posts it; it and its buffer stay in place until
/// done() or until the endpoint is destroyed.
class Transfer {
 public:
  // Set by the poster before start_send / start_recv.
  int peer = kAnyRank;  // of a receive of any: once a message has met it, that message's sender
  MessageTag tag;
  MessageSignature signature;
  std::byte* data = nullptr;  // a send only reads it
  std::size_t bytes = 0;      // exact: a message of another length is a mismatch
  /// Where it is put as soon as it has ended, for who has many in flight. nullptr: nowhere.
  std::vector<Transfer*>* ended = nullptr;

  /// True once the transfer has ended, well or badly. A send has ended when its buffer may be
  /// reused.
  bool done() const { return done_; }
  /// How it ended.
  const Status& status() const { return status_; }

  /// For endpoints.
  void complete(Status status) {
    status_ = std::move(status);
    done_ = true;
    if (ended != nullptr) ended->push_back(this);
  }
  /// Makes a finished transfer usable again.
  void reset() {
    done_ = false;
    status_ = Status();
    ended = nullptr;
  }

 private:
  bool done_ = false;
  Status status_;
};

/// Turns a signature into words for an error message: "all_reduce sum f32[1000]".
using SignaturePrinter = std::string (*)(const MessageSignature&);

/// Something besides transfers that a waiting rank is waiting for: memory that a peer will write.
class Readiness {
 public:
  /// Members of the shared group: whichever, or none of them.
  static constexpr int kAnyMember = -1;
  static constexpr int kNoMember = -2;

  /// Cheap: asked over and over while polling. On the thread that drives the endpoint.
  virtual bool ready() const = 0;
  /// The member of the shared group without whose next announcement this does not become ready. So
  /// that a sleeper is not woken by those of others.
  virtual int awaited_member() const { return kAnyMember; }

 protected:
  ~Readiness() = default;
};

/// The same of what may wait for messages alone.
inline int awaited_by(const Readiness* also) {
  return also == nullptr ? Readiness::kNoMember : also->awaited_member();
}

/// How a receive from any rank ends when no other one is left.
inline Status all_others_left() {
  return Status(StatusCode::kPeerLeft,
                "all other ranks have left: their communicators were destroyed");
}

/// How an operation ends that needs a peer whose endpoint was closed in good order. What users know
/// of endpoints is the communicator that has them.
inline Status peer_left(int peer) {
  return Status::about_peer(StatusCode::kPeerLeft, peer,
                            "has left: its communicator was destroyed");
}

class SharedGroup;

class Endpoint {
 public:
  /// Transfers in flight are dropped. Takes at most a moment, in which peers are told (0.3 s over
  /// TCP, where a peer's system does not answer or a message to it is being written), and what
  /// linger() allows.
  virtual ~Endpoint() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  /// Starts a transfer. It may be done already on return. Errors arrive through the transfer's
  /// status:
  ///   kPeerLost        the peer died or its connection broke
  ///   kPeerLeft        the peer closed its endpoint in an orderly way; for kAnyRank, all others
  ///                    have
  ///   kMismatch        the message that met a receive has another signature or length; names both
  ///   kInvalidArgument no such rank
  /// A failed endpoint gives every transfer its failure(), which keeps the code and the peer of the
  /// root cause also where another rank reported it.
  /// peer == rank() is allowed: a message to oneself.
  virtual void start_send(Transfer& transfer) = 0;
  virtual void start_recv(Transfer& transfer) = 0;

  /// Withdraws a transfer that is not done (its waiter gave up at a deadline). The whole endpoint
  /// fails, because a half-sent or half-received message leaves its stream useless. A message that
  /// is being sent over TCP may still be finished, and then is done without an error.
  virtual void cancel(Transfer& transfer, Status why) = 0;

  /// Makes progress. Returns as soon as any transfer has completed since the last call, wake() was
  /// called, `also` is ready, the endpoint has failed, or the deadline has passed; which of these,
  /// the caller sees for itself. What transfers wait for is looked at even if `also` is ready.
  virtual void poll(Deadline deadline, const Readiness* also = nullptr) = 0;

  /// Makes the current or the next poll() return. Any thread.
  virtual void wake() = 0;

  /// Why the endpoint failed, or ok. After a failure every transfer completes with an error: a
  /// failed endpoint stays failed. Any thread.
  virtual Status failure() const = 0;

  /// Fails this endpoint and tells every peer why, so that all ranks report the root cause rather
  /// than its echo; takes at most a moment, as the destructor. The first call counts.
  virtual void fail(Status why) = 0;

  /// How long the destruction of an endpoint that has not failed may take for what sends that are
  /// done have left on its way: until it has come to the systems of those peers, or they are gone.
  virtual void linger(std::chrono::nanoseconds /*longest*/) {}

  /// "tcp", "shm", "loopback": how this rank reaches `peer`.
  virtual const char* transport_name(int peer) const = 0;

  /// The ranks that have closed their endpoint in an orderly way, for whoever waits for something
  /// else than their transfers. Poll() returns when one leaves.
  virtual std::span<const int> departed() const { return {}; }

  /// The memory that this rank shares with others of its host, for collectives without messages;
  /// nullptr if there is none. Belongs to the endpoint and is used by the thread that drives it.
  virtual SharedGroup* shared_group() { return nullptr; }

  /// For those who read members' memory: failure(), after a look at what the members say of
  /// themselves. A member that gives up says so before its caller may write over that memory, so
  /// if this is ok, what was read before it is sound.
  virtual Status group_failure() { return failure(); }

  /// A member's memory cannot be read any more; `why` is about that rank. Fails the endpoint, with
  /// what the member itself says, or with its death, if either comes within a second. A member that
  /// has left in order is in departed() then, and the endpoint goes on.
  virtual void fail_unreadable(const Status& why) { fail(why); }
};

}  // namespace dlaunch
