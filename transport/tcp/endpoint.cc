#include "transport/tcp/endpoint.h"

#include <string>
#include <system_error>
#include <utility>

#include <asio/post.hpp>

namespace dlaunch {
namespace {

// Reads of one connection before others get their turn.
constexpr int kReadsPerTurn = 4;
// While spinning on the awaited connections, all others are looked at every so many passes.
constexpr unsigned kPassesPerFullPoll = 32;
// With more awaited connections, one epoll_wait is cheaper than a read of each.
constexpr int kMaxDirectReads = 4;
// Passes between two looks at the clock.
constexpr int kPassesPerClock = 8;
// How long a peer whose stream was cut off is a suspect only.
constexpr std::chrono::milliseconds kSuspicion{250};

Status left_status(int peer) {
  return Status::about_peer(StatusCode::kPeerLeft, peer, "has closed its endpoint");
}

}  // namespace

TcpEndpoint::TcpEndpoint(int rank, int world_size, std::chrono::nanoseconds spin,
                         SignaturePrinter describe)
    : io_(1),
      work_guard_(io_.get_executor()),
      context_{.rank = rank, .world_size = world_size, .describe = describe},
      spin_(spin),
      peers_(static_cast<std::size_t>(world_size)),
      self_(context_, rank) {}

TcpEndpoint::~TcpEndpoint() {
  if (!failure_.failed()) {
    const Status dropped(StatusCode::kAborted, "the endpoint was closed");
    const std::vector<std::byte> goodbye = encode_goodbye();
    self_.fail_receives(dropped);
    for (Peer& peer : peers_) {
      if (peer.connection == nullptr) continue;
      peer.connection->flush();
      peer.connection->fail_transfers(dropped);
      if (!peer.left) peer.connection->write_last(goodbye);
    }
  }
  for (Peer& peer : peers_) {
    if (peer.connection != nullptr) peer.connection->close();
  }
}

Status TcpEndpoint::add_connection(int peer, asio::ip::tcp::socket socket) {
  std::error_code error;
  const auto protocol = socket.local_endpoint(error).protocol();
  asio::ip::tcp::socket own(io_);
  if (!error) own.assign(protocol, socket.release(), error);
  if (error) {
    return Status::about_peer(StatusCode::kPeerLost, peer, "connection: " + error.message());
  }
  auto connection = std::make_unique<TcpConnection>(std::move(own), peer, context_, staging_);
  arm_read(*connection);
  peers_[static_cast<std::size_t>(peer)].connection = std::move(connection);
  return Status();
}

const char* TcpEndpoint::transport_name(int peer) const {
  return peer == context_.rank ? "self" : "tcp";
}

void TcpEndpoint::drop_connections() {
  for (Peer& peer : peers_) {
    if (peer.connection != nullptr) peer.connection->close();
  }
}

// --- transfers

// Completes a transfer that cannot even start; true if it is such.
bool TcpEndpoint::refuse(Transfer& transfer) {
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

void TcpEndpoint::start_send(Transfer& transfer) {
  if (refuse(transfer)) return;
  if (transfer.peer == context_.rank) return send_to_self(transfer);
  Peer& peer = peers_[static_cast<std::size_t>(transfer.peer)];
  if (peer.left) return context_.complete(transfer, left_status(transfer.peer));
  peer.connection->send(transfer);
  if (!transfer.done()) {
    if (peer.connection->write_failed()) return read(*peer.connection);
    arm_write(*peer.connection);
  }
}

void TcpEndpoint::start_recv(Transfer& transfer) {
  if (refuse(transfer)) return;
  if (transfer.peer == context_.rank) {
    if (Status posted = self_.post(transfer); !posted.ok()) fail(posted);
    return;
  }
  Peer& peer = peers_[static_cast<std::size_t>(transfer.peer)];
  if (Status posted = peer.connection->receiver().post(transfer); !posted.ok()) return fail(posted);
  if (!transfer.done() && peer.left) {
    peer.connection->receiver().fail_receives(left_status(transfer.peer));
  }
}

void TcpEndpoint::send_to_self(Transfer& transfer) {
  Status delivered = self_.deliver(transfer.tag, transfer.signature, transfer.data, transfer.bytes);
  context_.complete(transfer, delivered);
  if (!delivered.ok()) fail(delivered);
}

void TcpEndpoint::cancel(Transfer& transfer, Status why) {
  if (transfer.done()) return;
  fail(std::move(why));
}

// --- progress

// True if poll() has something to return for.
bool TcpEndpoint::take_event() {
  const bool woken =
      woken_.load(std::memory_order_relaxed) && woken_.exchange(false, std::memory_order_acquire);
  return std::exchange(context_.completed, false) || woken || failure_.failed();
}

void TcpEndpoint::poll(Deadline deadline, const Readiness* also) {
  if (suspect_ != nullptr && judgement_.expired()) name_as_lost(*suspect_);
  if (take_event() || (also != nullptr && also->ready())) return;
  if (spin_ > std::chrono::nanoseconds(0)) {
    if (spin_until(earliest(deadline, Deadline::after(spin_)))) return;
  }
  sleep_until(deadline);
}

bool TcpEndpoint::spin_until(Deadline deadline) {
  do {
    for (int pass = 0; pass < kPassesPerClock; ++pass) {
      const bool read_directly = poll_awaited();
      if (!read_directly || ++direct_passes_ % kPassesPerFullPoll == 0) io_.poll_one();
      if (take_event()) return true;
    }
  } while (!deadline.expired());
  return false;
}

// Tries the sockets that something is awaited from; false if there are none or too many.
bool TcpEndpoint::poll_awaited() {
  int awaited = 0;
  for (Peer& peer : peers_) {
    if (peer.connection == nullptr || peer.left || !peer.connection->awaited()) continue;
    if (++awaited > kMaxDirectReads) return false;
    if (peer.connection->has_sends()) flush(*peer.connection);
    read(*peer.connection);
    if (failure_.failed()) return true;
  }
  return awaited > 0;
}

void TcpEndpoint::sleep_until(Deadline deadline) {
  io_.poll_one();  // what is ready is handled even if the deadline has passed
  while (!take_event() && !deadline.expired()) {
    if (suspect_ != nullptr && judgement_.expired()) return name_as_lost(*suspect_);
    const Deadline limit = suspect_ == nullptr ? deadline : earliest(deadline, judgement_);
    sleeping_.store(true, std::memory_order_seq_cst);
    if (!woken_.load(std::memory_order_seq_cst)) io_.run_one_until(limit.when());
    sleeping_.store(false, std::memory_order_relaxed);
  }
}

void TcpEndpoint::wake() {
  // Either the sleeper sees woken_ before it sleeps, or this sees sleeping_.
  woken_.store(true, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst)) asio::post(io_, [] {});
}

void TcpEndpoint::arm_read(TcpConnection& connection) {
  if (connection.read_wait_armed || !connection.is_open()) return;
  connection.read_wait_armed = true;
  connection.socket().async_wait(asio::ip::tcp::socket::wait_read,
                                 [this, &connection](const std::error_code& error) {
                                   connection.read_wait_armed = false;
                                   if (error || failure_.failed()) return;
                                   read(connection);
                                   arm_read(connection);
                                 });
}

void TcpEndpoint::arm_write(TcpConnection& connection) {
  if (connection.write_wait_armed || !connection.is_open()) return;
  connection.write_wait_armed = true;
  connection.socket().async_wait(asio::ip::tcp::socket::wait_write,
                                 [this, &connection](const std::error_code& error) {
                                   connection.write_wait_armed = false;
                                   if (error || failure_.failed()) return;
                                   flush(connection);
                                   if (connection.has_sends()) arm_write(connection);
                                 });
}

void TcpEndpoint::flush(TcpConnection& connection) {
  if (!connection.flush() && connection.write_failed()) read(connection);
}

void TcpEndpoint::read(TcpConnection& connection) {
  // After a failed write everything the peer still said is read, to the end of the stream.
  for (int turn = 0; turn < kReadsPerTurn || connection.write_failed(); ++turn) {
    if (!connection.is_open()) return;
    const TcpConnection::Event event = connection.read();
    handle(connection, event);
    if (failure_.failed()) return;
    if (event == TcpConnection::Event::kIdle) return;
  }
}

// --- the end of a peer

void TcpEndpoint::handle(TcpConnection& connection, TcpConnection::Event event) {
  switch (event) {
    case TcpConnection::Event::kIdle:
    case TcpConnection::Event::kMore:
      return;
    case TcpConnection::Event::kGoodbye:
      return peer_left(connection);
    case TcpConnection::Event::kAbort:
      return fail_as(connection.notice().to_status(), connection.notice());
    case TcpConnection::Event::kClosed:
      if (peers_[static_cast<std::size_t>(connection.peer())].left) return connection.close();
      return connection_lost(connection);
    case TcpConnection::Event::kMalformed:
      if (connection.fault().code() != StatusCode::kProtocol) return fail(connection.fault());
      return fail(Status::about_peer(StatusCode::kProtocol, connection.peer(),
                                     connection.fault().to_string()));
  }
}

void TcpEndpoint::peer_left(TcpConnection& connection) {
  peers_[static_cast<std::size_t>(connection.peer())].left = true;
  connection.fail_transfers(left_status(connection.peer()));
}

// A rank that gave up because of another one's death may be seen to die first. It says why before
// it goes, unless it is in the middle of a frame to this rank, which it then cannot finish. So a
// stream that ends between two frames is a death of its own, while one that was cut off is a
// suspect for a moment: a notice or another rank's death in that time is the root cause.
void TcpEndpoint::connection_lost(TcpConnection& lost) {
  lost.close();
  if (lost.receiver().at_boundary()) return name_as_lost(lost);
  if (suspect_ == nullptr) {
    suspect_ = &lost;
    judgement_ = Deadline::after(kSuspicion);
  }
  bool others = false;
  for (Peer& peer : peers_) {
    if (peer.connection == nullptr || peer.left || !peer.connection->is_open()) continue;
    others = true;
    read(*peer.connection);
    if (failure_.failed()) return;
  }
  if (!others) name_as_lost(*suspect_);
}

void TcpEndpoint::name_as_lost(const TcpConnection& lost) {
  fail(Status::about_peer(StatusCode::kPeerLost, lost.peer(), lost.closed_because()));
}

void TcpEndpoint::fail(Status why) {
  const FailureNotice notice = FailureNotice::from(why, context_.rank);
  fail_as(why, notice);
}

void TcpEndpoint::fail_as(const Status& why, const FailureNotice& notice) {
  if (!failure_.set(why)) return;
  const std::vector<std::byte> abort = encode_abort(notice);
  self_.fail_receives(why);
  for (Peer& peer : peers_) {
    if (peer.connection == nullptr) continue;
    peer.connection->fail_transfers(why);
    if (!peer.left) peer.connection->write_last(abort);
  }
}

}  // namespace dlaunch
