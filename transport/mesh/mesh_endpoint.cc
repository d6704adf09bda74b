#include "transport/mesh/mesh_endpoint.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "runtime/base/pause.h"

namespace dlaunch {
namespace {

// While looking on, everything is looked at every so many times; else what is awaited.
constexpr unsigned kLooksPerFullLook = 256;
// With more awaited connections, one look at the events is cheaper than a read of each.
constexpr std::size_t kMaxDirectReads = 4;
// Looks between two looks at the clock.
constexpr int kLooksPerClock = 16;

}  // namespace

Result<std::unique_ptr<MeshEndpoint>> MeshEndpoint::make(int rank, int world_size, WaitPolicy wait,
                                                         SignaturePrinter describe,
                                                         std::size_t kept_bytes) {
  Result<EventSet> events = EventSet::make();
  if (!events.ok()) return events.status();
  Descriptor wakeup(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup.is_open()) return Status::from_errno("eventfd", errno);
  // Edge-triggered: it tells of each ring and need not be read.
  DLAUNCH_RETURN_IF_ERROR(events->add(wakeup.get(), EPOLLIN | EPOLLET, {.kind = kWakeup}));
  return std::unique_ptr<MeshEndpoint>(new MeshEndpoint(
      rank, world_size, wait, describe, kept_bytes, *std::move(events), std::move(wakeup)));
}

MeshEndpoint::MeshEndpoint(int rank, int world_size, WaitPolicy wait, SignaturePrinter describe,
                           std::size_t kept_bytes, EventSet events, Descriptor wakeup)
    : context_{.rank = rank,
               .world_size = world_size,
               .describe = describe,
               .kept_bytes = kept_bytes},
      wait_(wait),
      events_(std::move(events)),
      wakeup_(std::move(wakeup)),
      peers_(static_cast<std::size_t>(world_size)),
      self_(context_, rank) {}

MeshEndpoint::~MeshEndpoint() {
  if (!failure_.failed()) {
    for (Peer& each : peers_) {
      if (each.link != nullptr) each.link->flush();
      if (each.connection != nullptr) each.connection->flush();
    }
    const Status closed(StatusCode::kAborted, "the endpoint was closed");
    drop_local_transfers(closed);
    if (lane_.has_value()) {
      lane_->announce_left();
      wake_members();
    }
    end_streams(encode_goodbye(), TcpConnection::Delivery::kSent, linger_);
    drop_tcp_transfers(closed);
  }
  for (Peer& each : peers_) {
    if (each.connection != nullptr) each.connection->close();
  }
}

Status MeshEndpoint::add_connection(int rank, Descriptor socket) {
  DLAUNCH_RETURN_IF_ERROR(events_.add(socket.get(), EPOLLIN, {.kind = kSocket, .number = rank}));
  peer(rank).connection =
      std::make_unique<TcpConnection>(std::move(socket), rank, context_, staging_);
  return Status();
}

Status MeshEndpoint::add_group(std::shared_ptr<const HostGroup> host_group, int lane) {
  lane_.emplace(std::move(host_group), lane);
  const HostGroup& group = lane_->group();
  group_.emplace(lane_->make_shared_group());
  DLAUNCH_RETURN_IF_ERROR(
      events_.add(lane_->own_doorbell(), EPOLLIN | EPOLLET, {.kind = kDoorbell}));
  for (int member = 0; member < group_->size(); ++member) {
    if (member == group_->index()) continue;
    const HostGroup::Member& other = group.members[static_cast<std::size_t>(member)];
    DLAUNCH_RETURN_IF_ERROR(
        events_.add(other.pidfd.get(), EPOLLIN, {.kind = kDeath, .number = member}));
    peer(other.rank).link = std::make_unique<ShmLink>(
        context_, other.rank, *group_, member, lane_->ring_to(member), lane_->ring_from(member));
  }
  return Status();
}

const char* MeshEndpoint::transport_name(int rank) const {
  if (rank == context_.rank) return "self";
  return peers_[static_cast<std::size_t>(rank)].link != nullptr ? "shm" : "tcp";
}

void MeshEndpoint::vanish() {
  if (lane_.has_value()) {
    lane_->announce_vanished();
    wake_members();
  }
  for (Peer& each : peers_) {
    if (each.connection != nullptr) each.connection->close();
  }
  failure_.set(Status(StatusCode::kAborted, "this rank has vanished"));
}

// --- transfers

// Completes a transfer that cannot even start; true if it is such.
bool MeshEndpoint::refuse(Transfer& transfer) {
  if (failure_.failed()) {
    context_.complete(transfer, failure_.status());
    return true;
  }
  if (transfer.peer < 0 || transfer.peer >= context_.world_size ||
      transfer.bytes > kMaxMessageBytes) {
    context_.complete(transfer,
                      Status(StatusCode::kInvalidArgument,
                             "a message of " + std::to_string(transfer.bytes) + " bytes to rank " +
                                 std::to_string(transfer.peer) + " of a world of " +
                                 std::to_string(context_.world_size)));
    return true;
  }
  return false;
}

void MeshEndpoint::start_send(Transfer& transfer) {
  if (refuse(transfer)) return;
  if (transfer.peer == context_.rank) return send_to_self(transfer);
  Peer& to = peer(transfer.peer);
  if (to.left) return context_.complete(transfer, dlaunch::peer_left(transfer.peer));
  if (to.link != nullptr) {
    to.link->send(transfer);
    if (!transfer.done()) await(transfer.peer);
    return;
  }
  to.connection->send(transfer);
  if (transfer.done()) return;
  if (to.connection->write_failed()) return read_to_the_end(*to.connection);
  watch_for_room(*to.connection, true);
  await(transfer.peer);
}

void MeshEndpoint::start_recv(Transfer& transfer) {
  if (transfer.peer == kAnyRank && !failure_.failed()) return recv_from_any(transfer);
  if (refuse(transfer)) return;
  if (transfer.peer == context_.rank) {
    if (Status posted = self_.post(transfer); !posted.ok()) fail(posted);
    return;
  }
  Peer& from = peer(transfer.peer);
  const bool shared = from.link != nullptr;
  Status posted = shared ? from.link->post(transfer) : from.connection->receiver().post(transfer);
  if (!posted.ok()) return fail(posted);
  if (!shared) watch(*from.connection);  // it may have been left unread
  if (transfer.done()) return;
  if (!from.left) return await(transfer.peer);
  const Status left = dlaunch::peer_left(transfer.peer);
  shared ? from.link->fail_receives(left) : from.connection->receiver().fail_receives(left);
}

void MeshEndpoint::recv_from_any(Transfer& transfer) {
  if (const auto sender = sender_of_first(transfer.tag)) {
    transfer.peer = *sender;
    return start_recv(transfer);
  }
  if (alone()) return context_.complete(transfer, all_others_left());
  context_.receives_of_any.add(transfer);
  for (int rank = 0; rank < context_.world_size; ++rank) {
    if (rank == context_.rank || peer(rank).left) continue;
    // It may have been left unread.
    if (peer(rank).connection != nullptr) watch(*peer(rank).connection);
    await(rank);
  }
}

// Of the messages that are here or arriving, and wait for a receive with `tag`.
std::optional<int> MeshEndpoint::sender_of_first(const MessageTag& tag) const {
  std::optional<int> sender;
  std::uint64_t first = 0;
  const auto consider = [&](int rank, const Inbox::Message* message) {
    if (message == nullptr || (sender && message->arrival > first)) return;
    sender = rank;
    first = message->arrival;
  };
  consider(context_.rank, self_.find_message(tag));
  for (int rank = 0; rank < context_.world_size; ++rank) {
    const Peer& from = peers_[static_cast<std::size_t>(rank)];
    if (from.link != nullptr) consider(rank, from.link->find_message(tag));
    if (from.connection != nullptr) consider(rank, from.connection->receiver().find_message(tag));
  }
  return sender;
}

// All others have left. (The only rank of a world may get messages from itself.)
bool MeshEndpoint::alone() const {
  return context_.world_size > 1 &&
         departed_.size() + 1 == static_cast<std::size_t>(context_.world_size);
}

void MeshEndpoint::send_to_self(Transfer& transfer) {
  Status delivered = self_.deliver(transfer.tag, transfer.signature, transfer.data, transfer.bytes);
  context_.complete(transfer, delivered);
  if (!delivered.ok()) fail(delivered);
}

void MeshEndpoint::cancel(Transfer& transfer, Status why) {
  if (transfer.done()) return;
  fail(std::move(why));
}

// From now on the peer is looked at whenever this rank waits.
void MeshEndpoint::await(int rank) {
  Peer& from = peer(rank);
  if (std::exchange(from.awaited, true)) return;
  awaited_.push_back(rank);
  if (from.connection != nullptr) ++awaited_connections_;
}

// --- waiting

// True if poll() has something to return for.
bool MeshEndpoint::take_event(const Readiness* also) {
  // Of one order with the stores of fall_asleep() and wake().
  const bool woken =
      woken_.load(std::memory_order_seq_cst) && woken_.exchange(false, std::memory_order_acquire);
  return std::exchange(context_.completed, false) || woken || failure_.failed() ||
         (also != nullptr && also->ready());
}

void MeshEndpoint::poll(Deadline deadline, const Readiness* also) {
  if (suspect_ != nullptr && judgement_.expired()) {
    look_at_everything();  // what speaks for it may have come since the last call
    if (!failure_.failed()) name_as_lost(*suspect_);
  }
  // Not yet for `also`: it may be ready at every call, and messages would starve behind it.
  if (take_event(nullptr)) return;
  if (look_on(deadline, also)) return;
  sleep_until(deadline, also);
}

bool MeshEndpoint::look_on(Deadline deadline, const Readiness* also) {
  if (wait_.core_each()) {
    Deadline end = deadline;
    for (bool first = true;; first = false) {
      for (int look = 0; look < kLooksPerClock; ++look) {
        look_at_awaited();
        if (take_event(also)) return true;
        pause_briefly();
      }
      if (first) end = earliest(deadline, Deadline::after(wait_.spin));
      if (end.expired()) break;
      // A rank that was just woken may have been put on this very core, where it waits for its
      // turn.
      ::sched_yield();
    }
  }
  for (int turn = 0; turn < wait_.yields; ++turn) {
    look_at_awaited();
    if (take_event(also)) return true;
    if (turn % kLooksPerClock == 0 && deadline.expired()) return false;
    ::sched_yield();
  }
  return false;
}

// What something is awaited from; now and then everything.
void MeshEndpoint::look_at_awaited() {
  if (++looks_ % kLooksPerFullLook == 0) return look_at_everything();
  if (awaited_connections_ > kMaxDirectReads) handle(events_.look());
  for (std::size_t i = 0; i < awaited_.size() && !failure_.failed();) {
    Peer& each = peer(awaited_[i]);
    if (look_at(each)) {
      ++i;
      continue;
    }
    each.awaited = false;
    if (each.connection != nullptr) --awaited_connections_;
    awaited_[i] = awaited_.back();
    awaited_.pop_back();
  }
  if (lane_.has_value() && lane_->events() != seen_events_) look_at_members();
}

// True if something is still awaited from the peer.
bool MeshEndpoint::look_at(Peer& who) {
  if (who.left) return false;
  if (who.link != nullptr) {
    if (who.link->has_sends()) who.link->flush();
    if (who.link->has_input()) read(*who.link);
    return who.link->awaited();
  }
  if (awaited_connections_ <= kMaxDirectReads && who.connection->is_open()) {
    if (who.connection->has_sends()) flush(*who.connection);
    read(*who.connection);
  }
  return who.connection->awaited();
}

void MeshEndpoint::look_at_everything() {
  look_at_memory();
  handle(events_.look());
}

// True if there is more to be read at once.
bool MeshEndpoint::look_at_memory() {
  if (!lane_.has_value()) return false;
  bool more = false;
  for (Peer& each : peers_) {
    if (failure_.failed()) return false;
    if (each.link == nullptr || each.left) continue;
    if (each.link->has_sends()) each.link->flush();
    if (!each.link->has_input()) continue;
    read(*each.link);
    more = more || each.link->has_input();
  }
  if (lane_->events() != seen_events_) look_at_members();
  return more;
}

void MeshEndpoint::sleep_until(Deadline deadline, const Readiness* also) {
  look_at_everything();  // what is ready is handled even if the deadline has passed
  while (!take_event(also) && !deadline.expired()) {
    if (suspect_ != nullptr && judgement_.expired()) return name_as_lost(*suspect_);
    const Deadline limit = suspect_ == nullptr ? deadline : earliest(deadline, judgement_);
    // Whoever changes something from here on sees that this rank is asleep; so what has changed
    // before is looked at once more.
    fall_asleep(also);
    const bool more = look_at_memory();
    if (take_event(also)) return wake_up();
    const auto events = more ? events_.look() : events_.wait(limit);
    wake_up();
    handle(events);
    look_at_memory();
  }
}

void MeshEndpoint::fall_asleep(const Readiness* also) {
  sleeping_.store(true, std::memory_order_seq_cst);
  if (group_.has_value()) group_->fall_asleep(awaited_by(also));
}

void MeshEndpoint::wake_up() {
  if (group_.has_value()) group_->wake_up();
  sleeping_.store(false, std::memory_order_relaxed);
}

void MeshEndpoint::wake() {
  // Either the sleeper sees woken_ before it sleeps, or this sees sleeping_.
  woken_.store(true, std::memory_order_seq_cst);
  if (!sleeping_.load(std::memory_order_seq_cst)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakeup_.get(), &one, sizeof one);
}

void MeshEndpoint::handle(std::span<const EventSet::Event> events) {
  for (const EventSet::Event& event : events) {
    if (failure_.failed()) return;
    const int number = event.token.number;
    if (event.token.kind == kDeath) member_died(number);
    if (event.token.kind == kSocket) handle(*peer(number).connection, event.what);
    if (event.token.kind == kWitness) read_to_the_end(*peer(number).connection);
  }
}

// --- failure

void MeshEndpoint::peer_left(int rank) {
  Peer& who = peer(rank);
  who.left = true;
  departed_.push_back(rank);
  context_.completed = true;  // poll() returns
  const Status left = dlaunch::peer_left(rank);
  if (who.link != nullptr) who.link->fail_transfers(left);
  if (who.connection != nullptr) who.connection->fail_transfers(left);
  if (alone()) context_.fail_receives_of_any(all_others_left());
}

// What a peer has sent is not what it should be.
void MeshEndpoint::fail_about(int rank, const Status& fault) {
  if (fault.code() != StatusCode::kProtocol) return fail(fault);
  fail(Status::about_peer(StatusCode::kProtocol, rank, fault.to_string()));
}

void MeshEndpoint::fail(Status why) {
  const FailureNotice notice = FailureNotice::from(why, context_.rank);
  fail_as(why, notice);
}

void MeshEndpoint::fail_as(const Status& why, const FailureNotice& notice) {
  if (!failure_.set(why)) return;
  drop_local_transfers(why);
  if (lane_.has_value()) {
    lane_->announce_failure(notice);
    wake_members();
  }
  end_streams(encode_abort(notice), TcpConnection::Delivery::kArrived, {});
  drop_tcp_transfers(why);
}

void MeshEndpoint::drop_local_transfers(const Status& why) {
  self_.fail_receives(why);
  context_.fail_receives_of_any(why);
  for (Peer& each : peers_) {
    if (each.link != nullptr) each.link->fail_transfers(why);
  }
}

}  // namespace dlaunch
