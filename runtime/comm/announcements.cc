#include "runtime/comm/announcements.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "runtime/base/deadline.h"
#include "runtime/collective/signature.h"

namespace dlaunch {
namespace {

// How many past calls can still be compared.
constexpr std::size_t kRemembered = 256;
// A rank that has never announced anything may not be listening: it is not sent more than this.
constexpr int kMostUnanswered = 64;
// How long clarify() listens at most, and how long it and last_words() do at a time: others may
// want the mutex.
constexpr std::chrono::milliseconds kClarification{400};
constexpr std::chrono::milliseconds kTurn{5};
// Of calls that look around one after the other, very many perhaps, one listens for all.
constexpr std::chrono::milliseconds kBetweenListenings{5};
// How long last_words() listens.
constexpr std::chrono::milliseconds kLastWords{250};

const MessageTag kTag{.context = static_cast<std::uint32_t>(Traffic::kAnnouncement)};
const MessageSignature kSignature{.operation = kAnnouncementOperation};

std::size_t index_of(LaneKind lane) {
  return static_cast<std::size_t>(lane);
}

std::string kind_of_call(std::size_t lane) {
  constexpr const char* kNames[kLaneKinds] = {"blocking", "asynchronous", "high-priority"};
  return kNames[lane];
}

// True if `waiter` cannot get out of this call before rank `other` has entered it.
bool needs(const MessageSignature& call, int waiter, int other) {
  switch (static_cast<CollectiveKind>(call.operation)) {
    case CollectiveKind::kBarrier:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllToAll:
      return true;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return other == call.root;
    case CollectiveKind::kGather:
    case CollectiveKind::kReduce:
      return waiter == call.root;
  }
  return false;
}

}  // namespace

Announcements::Announcements(std::unique_ptr<Endpoint> endpoint)
    : rank_(endpoint->rank()),
      peers_(static_cast<std::size_t>(endpoint->world_size())),
      endpoint_(std::move(endpoint)) {
  for (OwnLane& lane : lanes_) lane.calls.resize(kRemembered);
}

const Announcements::Call* Announcements::own_call(std::size_t lane, std::uint64_t sequence) const {
  const Call& call = lanes_[lane].calls[sequence % kRemembered];
  return call.sequence == sequence && sequence > 0 ? &call : nullptr;
}

std::optional<MessageSignature> Announcements::own(LaneKind lane, std::uint64_t sequence) const {
  const std::scoped_lock lock(mutex_);
  const Call* const call = own_call(index_of(lane), sequence);
  if (call == nullptr) return std::nullopt;
  return call->signature;
}

Status Announcements::entered(LaneKind kind, std::uint64_t sequence,
                              const MessageSignature& signature) {
  const std::scoped_lock lock(mutex_);
  OwnLane& own = lanes_[index_of(kind)];
  own.last = sequence;
  own.calls[sequence % kRemembered] = {sequence, signature};
  return early_.empty() ? Status() : compare_early(index_of(kind), sequence);
}

Status Announcements::compare_early(std::size_t lane, std::uint64_t sequence) {
  Status found;
  std::erase_if(early_, [&](const Foreign& foreign) {
    if (foreign.lane != lane || foreign.call.sequence > sequence) return false;
    if (found.ok()) found = compare(foreign.peer, lane, foreign.call);
    return true;
  });
  return found;
}

Status Announcements::compare(int peer, std::size_t lane, const Call& theirs) const {
  const Call* const own = own_call(lane, theirs.sequence);
  if (own == nullptr || theirs.signature == own->signature) return Status();
  const MessageSignature& ours = own->signature;
  // Calls that differ only in what went before them are not what went wrong.
  MessageSignature alike = theirs.signature;
  alike.extra = signature_extra(static_cast<std::uint32_t>(alike.extra),
                                static_cast<std::uint32_t>(ours.extra >> 32));
  if (alike == ours) return Status();
  return Status::about_peer(StatusCode::kMismatch, peer,
                            "called " + describe_call(theirs.signature) + " as " +
                                kind_of_call(lane) + " collective #" +
                                std::to_string(theirs.sequence) + " where rank " +
                                std::to_string(rank_) + " called " + describe_call(ours));
}

// Makes a transfer one of `payload`, to or from `peer`.
void Announcements::address(Transfer& transfer, int peer, Payload& payload) {
  transfer.peer = peer;
  transfer.tag = kTag;
  transfer.signature = kSignature;
  transfer.data = reinterpret_cast<std::byte*>(&payload);
  transfer.bytes = sizeof(Payload);
}

void Announcements::listen(int peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  from.listening = true;
  from.recv.reset();
  address(from.recv, peer, from.heard);
  endpoint_->start_recv(from.recv);
}

Announcements::Payload Announcements::payload_for(const Wait& wait, int peer) const {
  const std::size_t lane = index_of(wait.lane);
  Payload payload;
  payload.lane = static_cast<std::uint32_t>(lane);
  payload.alone = wait.alone ? 1 : 0;
  payload.in_message = wait.sequence == 0 ? 1 : 0;
  payload.messages_driven = messages_driven_.load(std::memory_order_relaxed) ? 1 : 0;
  payload.waits = static_cast<std::uint8_t>(std::min<std::size_t>(wait.waiting_for.size(), 255));
  std::copy_n(wait.waiting_for.begin(), std::min(wait.waiting_for.size(), kToldRanks),
              payload.waiting_for.begin());
  for (std::size_t i = 0; i < kLaneKinds; ++i) {
    payload.called[i] = called_[i].load(std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < kToldCalls && i < wait.sequence; ++i) {
    const Call* const call = own_call(lane, wait.sequence - i);
    if (call != nullptr) payload.calls[i] = *call;
  }
  if (wait.sequence > 0 && payload.calls[0].sequence == 0) {
    // So many calls are in flight that nobody could say which of them waits.
    payload.alone = 0;
    payload.waits = 0;
  }
  payload.message = wait.message;
  const Peer& reader = peers_[static_cast<std::size_t>(peer)];
  payload.sent = reader.sent.load(std::memory_order_relaxed);
  payload.received = reader.received.load(std::memory_order_relaxed);
  return payload;
}

void Announcements::announce(const Wait& wait) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int rank = static_cast<int>(i);
    Peer& peer = peers_[i];
    // Those to one that never listens stay; the others' are not kept behind them.
    while (!peer.letters.empty() && peer.letters.front().send.done()) peer.letters.pop_front();
    const bool concerned =
        wait.sequence > 0 || wait.message.peer == kAnyRank || rank == wait.message.peer;
    if (rank == rank_ || !concerned || peer.unanswered >= kMostUnanswered) continue;
    if (!peer.listening) listen(rank);
    ++peer.unanswered;
    Letter& letter = peer.letters.emplace_back();
    letter.payload = payload_for(wait, rank);
    address(letter.send, rank, letter.payload);
    endpoint_->start_send(letter.send);
  }
}

// Takes in what has arrived. A receive that ended badly says that the peer left or that the
// endpoint failed; whether that matters, the collective itself finds out.
Status Announcements::take_in() {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    const int rank = static_cast<int>(i);
    while (peer.listening && peer.recv.done() && peer.recv.status().ok()) {
      const Payload heard = peer.heard;
      listen(rank);
      DLAUNCH_RETURN_IF_ERROR(hear(rank, heard));
    }
  }
  return Status();
}

Status Announcements::hear(int rank, const Payload& heard) {
  if (heard.lane >= kLaneKinds) return Status();
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  peer.unanswered = 0;
  peer.last = heard;
  peer.heard_at = Deadline::Clock::now();
  if (heard.alone != 0) peer.alone = heard;
  for (std::size_t i = 0; i < kLaneKinds; ++i) {
    peer.newest[i] = std::max(peer.newest[i], heard.called[i]);
  }
  for (std::size_t i = kToldCalls; i-- > 0;) {  // the oldest difference is the cause of the others
    const Call& call = heard.calls[i];
    if (call.sequence == 0) continue;
    if (call.sequence > lanes_[heard.lane].last) {
      early_.push_back({rank, heard.lane, call});
    } else {
      DLAUNCH_RETURN_IF_ERROR(compare(rank, heard.lane, call));
    }
  }
  return Status();
}

// "blocking barrier", "asynchronous recv f32[3] from rank 1".
std::string Announcements::describe(const Payload& wait) {
  return wait.in_message != 0
             ? describe_message(wait.message)
             : kind_of_call(wait.lane) + " " + describe_call(wait.calls[0].signature);
}

// True if `waiter` cannot go on before `other` makes a call that it cannot make in its own wait.
bool Announcements::stuck(const Payload& wait, int waiter, const Payload& other_wait, int other) {
  if (wait.in_message == 0) {
    const Call& call = wait.calls[0];
    return other_wait.called[wait.lane] < call.sequence && needs(call.signature, waiter, other);
  }
  if (wait.message.peer != other) return false;
  if (!wait.message.outgoing) return other_wait.sent == wait.received;  // nothing is on its way
  // Whoever looks after messages also takes in what nobody has asked for yet, as long as not too
  // much is kept of it; who sends itself may wait for this one to do so.
  const bool takes_in =
      other_wait.in_message != 0 ? !other_wait.message.outgoing : other_wait.messages_driven != 0;
  return !takes_in && other_wait.received < wait.sent;
}

// True if this rank and `peer` wait for each other.
bool Announcements::stands_against(const Wait& wait, int peer, const Payload& theirs) const {
  const Payload ours = payload_for(wait, peer);
  return stuck(theirs, peer, ours, rank_) && stuck(ours, rank_, theirs, peer);
}

std::string Announcements::opposition(const Wait& wait, int peer, const Payload& theirs) const {
  return "waits in " + describe(theirs) + " where rank " + std::to_string(rank_) + " waits in " +
         describe(payload_for(wait, peer));
}

Status Announcements::crossed(const Wait& wait) const {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int rank = static_cast<int>(i);
    const Payload& theirs = peers_[i].alone;
    // A send may have ended since it was told of: this rank's endpoint takes in what nobody has
    // asked for whenever it looks for something else on that lane.
    const bool sends = theirs.in_message != 0 && theirs.message.outgoing;
    if (theirs.alone == 0 || sends || !stands_against(wait, rank, theirs)) continue;
    return Status::about_peer(StatusCode::kMismatch, rank, opposition(wait, rank, theirs));
  }
  return Status();
}

std::string Announcements::opposed(const Wait& wait) const {
  const std::scoped_lock lock(mutex_);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int rank = static_cast<int>(i);
    const Payload& theirs = peers_[i].last;
    if (theirs.waits == 0 || !stands_against(wait, rank, theirs)) continue;
    return "rank " + std::to_string(rank) + " " + opposition(wait, rank, theirs);
  }
  return "";
}

Status Announcements::look_around(const Wait& wait, bool news) {
  const std::scoped_lock lock(mutex_);
  if (news) announce(wait);
  if (next_listening_.expired()) {
    endpoint_->poll(Deadline::after({}));
    DLAUNCH_RETURN_IF_ERROR(take_in());
    next_listening_ = Deadline::after(kBetweenListenings);
  }
  return wait.alone ? crossed(wait) : Status();
}

Status Announcements::clarify(LaneKind lane, std::uint64_t sequence, const Status& why) {
  const Deadline deadline = Deadline::after(kClarification);
  for (bool first = true;; first = false) {
    {
      const std::scoped_lock lock(mutex_);
      if (first) announce({.lane = lane, .sequence = sequence});
      endpoint_->poll(Deadline::after(kTurn));
      if (Status clash = take_in(); !clash.ok()) return clash;
      if (const Status failure = endpoint_->failure(); !failure.ok()) {
        return failure.code() == StatusCode::kMismatch ? failure : why;
      }
    }
    if (deadline.expired()) return why;
    std::this_thread::yield();
  }
}

Status Announcements::last_words(const Status& why) {
  const int peer = why.peer().value_or(rank_);
  for (const Deadline deadline = Deadline::after(kLastWords); !deadline.expired();) {
    {
      const std::scoped_lock lock(mutex_);
      endpoint_->poll(Deadline::after(kTurn));
      if (const Status failure = endpoint_->failure(); !failure.ok()) {
        const bool same = failure.code() == StatusCode::kPeerLost && failure.peer() == peer;
        return same ? why : failure;
      }
      if (std::ranges::find(endpoint_->departed(), peer) != endpoint_->departed().end()) {
        return peer_left(peer);
      }
    }
    std::this_thread::yield();
  }
  return why;
}

std::vector<int> Announcements::silent(LaneKind lane, std::uint64_t sequence) const {
  const std::scoped_lock lock(mutex_);
  std::vector<int> ranks;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (rank != rank_ && peers_[i].newest[index_of(lane)] < sequence) ranks.push_back(rank);
  }
  return ranks;
}

std::string Announcements::trail(int rank, Deadline::Clock::time_point since) const {
  constexpr int kMostSteps = 4;
  const std::scoped_lock lock(mutex_);
  std::string text;
  std::vector<int> told{rank_};
  for (int step = 0; step < kMostSteps && std::ranges::find(told, rank) == told.end(); ++step) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (peer.heard_at < since || peer.last.waits == 0) break;
    const Payload& wait = peer.last;
    const int next = wait.waiting_for[0];
    if (next < 0 || static_cast<std::size_t>(next) >= peers_.size()) break;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) +
            (text.empty() ? " waited in " : " in ") +
            (wait.in_message != 0
                 ? describe_message(wait.message)
                 : describe_numbered(wait.calls[0].signature, wait.calls[0].sequence)) +
            " for rank " + std::to_string(next);
    told.push_back(rank);
    rank = next;
  }
  return text;
}

void Announcements::fail(const Status& why) {
  const std::scoped_lock lock(mutex_);
  endpoint_->fail(why);
}

}  // namespace dlaunch
