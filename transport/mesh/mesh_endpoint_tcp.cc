// MeshEndpoint: its peers over TCP.
#include <poll.h>

#include <algorithm>

#include "transport/mesh/mesh_endpoint.h"

namespace dlaunch {
namespace {

// Reads of one connection before others get their turn.
constexpr int kReadsPerTurn = 4;
// How long a peer whose stream was cut off is a suspect only.
constexpr std::chrono::milliseconds kSuspicion{250};
// How long the systems of peers have to take in the last words: a round trip and one that is lost.
constexpr std::chrono::milliseconds kParting{300};
// Between two looks whether they have; later, when it is a peer that is waited for.
constexpr int kStepMilliseconds = 1;
constexpr int kLaterStepMilliseconds = 20;

}  // namespace

// Another lane's connection to the peer. While so much is kept that this lane's is not read, nobody
// sees its end: that comes behind what is unread.
Status MeshEndpoint::add_witness(int rank, int descriptor) {
  // Edge-triggered: it tells once, also if the other lane closes its end first.
  return events_.add(descriptor, EPOLLRDHUP | EPOLLET, {.kind = kWitness, .number = rank});
}

// Events tell when there is something to read, but while too much is kept only of the end of the
// stream.
void MeshEndpoint::watch(TcpConnection& connection) {
  const std::uint32_t input = connection.receiver().is_full() ? EPOLLRDHUP : EPOLLIN;
  const std::uint32_t what = connection.awaits_room ? input | EPOLLOUT : input;
  if (!connection.is_open() || std::exchange(connection.watched, what) == what) return;
  events_.change(connection.descriptor(), what, {.kind = kSocket, .number = connection.peer()});
}

// Events tell when there is room to write, until nothing is left to be written.
void MeshEndpoint::watch_for_room(TcpConnection& connection, bool watch_it) {
  connection.awaits_room = watch_it;
  watch(connection);
}

void MeshEndpoint::flush(TcpConnection& connection) {
  if (!connection.flush() && connection.write_failed()) read_to_the_end(connection);
}

// The peer has ended its stream, or is about to: what it sent before is all that comes.
void MeshEndpoint::read_to_the_end(TcpConnection& connection) {
  connection.receiver().lift_limit();
  watch(connection);
  read(connection);
}

void MeshEndpoint::read(TcpConnection& connection) {
  // After a failed write everything the peer still said is read, to the end of the stream.
  for (int turn = 0; turn < kReadsPerTurn || connection.write_failed(); ++turn) {
    if (!connection.is_open()) return;
    if (connection.receiver().is_full()) return watch(connection);
    const TcpConnection::Event event = connection.read();
    handle(connection, event);
    if (failure_.failed()) return;
    // The peer knows nothing of a write that failed here, and will not end the stream.
    const Status fault = connection.write_fault();
    const bool goes_on = event != TcpConnection::Event::kIdle;
    if (goes_on && (fault.ok() || turn < kReadsPerTurn)) continue;
    if (!fault.ok()) fail(fault);
    return;
  }
}

void MeshEndpoint::handle(TcpConnection& connection, std::uint32_t what) {
  if (!connection.is_open()) return;
  if ((what & EPOLLOUT) != 0) {
    flush(connection);
    if (!connection.has_sends()) watch_for_room(connection, false);
  }
  if (failure_.failed()) return;
  if ((what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) return read_to_the_end(connection);
  if ((what & EPOLLIN) != 0) read(connection);
}

void MeshEndpoint::handle(TcpConnection& connection, TcpConnection::Event event) {
  switch (event) {
    case TcpConnection::Event::kIdle:
    case TcpConnection::Event::kMore:
      return;
    case TcpConnection::Event::kGoodbye:
      return peer_left(connection.peer());
    case TcpConnection::Event::kAbort:
      return fail_as(connection.notice().to_status(), connection.notice());
    case TcpConnection::Event::kClosed:
      if (peer(connection.peer()).left) return close(connection);
      return connection_lost(connection);
    case TcpConnection::Event::kMalformed:
      return fail_about(connection.peer(), connection.fault());
  }
}

// A process that was forked meanwhile keeps the socket open, and with it in the set of events.
void MeshEndpoint::close(TcpConnection& connection) {
  events_.remove(connection.descriptor());
  connection.close();
}

// A rank that gave up because of another one's death may be seen to die first. It says why before
// it goes, unless it is in the middle of a frame to this rank that it cannot finish in time. So a
// stream that ends between two frames is a death of its own, while one that was cut off is a
// suspect for a moment: a notice or another rank's death in that time is the root cause.
void MeshEndpoint::connection_lost(TcpConnection& lost) {
  close(lost);
  if (lost.receiver().at_boundary()) return name_as_lost(lost);
  if (suspect_ == nullptr) {
    suspect_ = &lost;
    judgement_ = Deadline::after(kSuspicion);
  }
  bool others = false;
  look_at_memory();
  for (Peer& each : peers_) {
    if (failure_.failed()) return;
    if (each.left) continue;
    others = others || each.link != nullptr;
    if (each.connection == nullptr || !each.connection->is_open()) continue;
    others = true;
    read(*each.connection);
  }
  if (!failure_.failed() && !others) name_as_lost(*suspect_);
}

void MeshEndpoint::name_as_lost(const TcpConnection& lost) {
  fail(Status::about_peer(StatusCode::kPeerLost, lost.peer(), lost.closed_because()));
}

// Stays until the last words have gone, because they may be lost when this process ends, or its
// sockets are closed. Those of a failure go while peers still send, so that a reset is certain:
// they have to arrive. Peers that answer by failing, too, do so at once. Transfers are still in
// place: a message that is being written goes first. That is a moment; what sends that are done
// have left on its way may take as long as `linger`.
void MeshEndpoint::end_streams(const std::vector<std::byte>& last, TcpConnection::Delivery until,
                               std::chrono::nanoseconds linger) {
  for (Peer& each : peers_) {
    if (each.connection != nullptr && !each.left) each.connection->write_last(last);
  }
  const Deadline moment = Deadline::after(kParting);
  const Deadline end = Deadline::after(linger);
  const auto keeps = [&](const Peer& each) {
    if (each.connection == nullptr || each.left) return false;
    const bool parted = each.connection->part(until);
    return (!parted && !moment.expired()) || (!end.expired() && each.connection->owes());
  };
  // Of every connection in each step.
  while (std::ranges::count_if(peers_, keeps) > 0) {
    ::poll(nullptr, 0, moment.expired() ? kLaterStepMilliseconds : kStepMilliseconds);
  }
}

void MeshEndpoint::drop_tcp_transfers(const Status& why) {
  for (Peer& each : peers_) {
    if (each.connection != nullptr) each.connection->fail_transfers(why);
  }
}

}  // namespace dlaunch
