#include "transport/tcp/socket_mesh.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <asio/steady_timer.hpp>

#include "runtime/base/descriptor.h"
#include "runtime/base/host_address.h"
#include "transport/tcp/dialer.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/listener_socket.h"

namespace dlaunch {
namespace {

using asio::ip::tcp;

// Unproved connections beyond what is expected are dropped at once: strangers cannot use up the
// descriptors. A rank that is turned away so tries again.
constexpr int kSpareHandshakes = 256;
// Strangers that get a line of their own in the log.
constexpr int kLoggedStrangers = 20;
constexpr std::chrono::milliseconds kAcceptPause{20};
// At most so much later, and a tenth of the time, ranks give up that only listen.
constexpr std::chrono::seconds kForDialers{1};

class SocketMesh {
 public:
  SocketMesh(std::unique_ptr<TcpListener::Socket> listener, const SocketMeshOptions& options)
      : options_(options),
        logger_(options.logger ? options.logger : make_null_logger()),
        identity_{options.token,
                  {.rank = static_cast<std::uint32_t>(options.rank),
                   .world_size = static_cast<std::uint32_t>(options.world_size),
                   .lane = 0,
                   .lanes = static_cast<std::uint32_t>(options.lanes),
                   .job = hash_job(options.job_id)}},
        listener_(std::move(listener)),
        accept_timer_(listener_->io) {
    sockets_.resize(static_cast<std::size_t>(options.lanes));
    for (auto& lane : sockets_) lane.resize(static_cast<std::size_t>(options.world_size));
    for (int peer = 0; peer < options.world_size; ++peer) {
      if (is_reached(peer)) missing_ += sockets_.size();
    }
  }

  Status connect();
  Result<std::vector<std::vector<Descriptor>>> release_sockets();

 private:
  bool is_reached(int peer) const { return peer != options_.rank && !address_of(peer).empty(); }
  void dial(int peer, int lane);
  void accept();
  void greet(tcp::socket socket);
  Status admit(const Hello& hello) const;
  void keep(HandshakeOutcome outcome);
  void log_stranger(const std::string& from, const Status& why);
  bool is_missing(int peer) const;
  bool misses_lower_ranks() const;
  std::string reason_of(int peer) const;
  std::string missing_ranks() const;
  void log_missing_ranks() const;
  std::string advice() const;
  const std::string& address_of(int rank) const {
    return options_.addresses[static_cast<std::size_t>(rank)];
  }
  Status too_late() const;
  const std::optional<tcp::socket>& slot(std::uint32_t lane, std::uint32_t peer) const {
    return sockets_[lane][peer];
  }

  const SocketMeshOptions& options_;
  Logger logger_;
  HandshakeIdentity identity_;
  std::unique_ptr<TcpListener::Socket> listener_;  // its io_context runs everything here
  asio::steady_timer accept_timer_;
  std::vector<std::unique_ptr<Dialer>> dialers_;
  std::vector<std::vector<std::optional<tcp::socket>>> sockets_;  // by lane, then peer
  std::size_t missing_ = 0;
  int handshakes_ = 0;  // accepted connections that have not proved themselves
  int strangers_ = 0;
  std::error_code accept_error_;  // the last one
  Status failure_;
};

Status SocketMesh::connect() {
  const Deadline deadline = Deadline::after(options_.timeout);
  const Deadline last = Deadline::after(
      options_.timeout + std::min<std::chrono::nanoseconds>(kForDialers, options_.timeout / 10));
  asio::steady_timer notice(listener_->io, options_.notice_after);
  notice.async_wait([this](const std::error_code& cancelled) {
    if (!cancelled && misses_lower_ranks()) log_missing_ranks();
  });
  for (int peer = 0; peer < options_.rank; ++peer) {
    if (!is_reached(peer)) continue;
    for (int lane = 0; lane < options_.lanes; ++lane) dial(peer, lane);
  }
  if (missing_ > 0) accept();
  while (missing_ > 0 && failure_.ok()) {
    if (last.expired() || (deadline.expired() && misses_lower_ranks())) return too_late();
    listener_->io.run_one_until((deadline.expired() ? last : deadline).when());
  }
  return failure_;
}

void SocketMesh::dial(int peer, int lane) {
  auto connected = [this](HandshakeOutcome outcome) {
    if (outcome.status.ok()) return keep(std::move(outcome));
    if (failure_.ok()) failure_ = outcome.status;
  };
  dialers_.push_back(std::make_unique<Dialer>(listener_->io, identity_, peer, lane,
                                              options_.patience, address_of(peer),
                                              std::move(connected)));
  dialers_.back()->start();
}

void SocketMesh::accept() {
  listener_->acceptor.async_accept([this](const std::error_code& error, tcp::socket socket) {
    if (!error) {
      close_on_exec(socket.native_handle());
      greet(std::move(socket));
      return accept();
    }
    accept_error_ = error;
    // Out of descriptors, or a connection that was gone before it was taken.
    accept_timer_.expires_after(kAcceptPause);
    accept_timer_.async_wait([this](const std::error_code& cancelled) {
      if (!cancelled) accept();
    });
  });
}

void SocketMesh::greet(tcp::socket socket) {
  std::error_code unknown;
  std::string from = endpoint_text(socket.remote_endpoint(unknown).data());
  if (handshakes_ >= static_cast<int>(missing_) + kSpareHandshakes) {
    return log_stranger(from, Status(StatusCode::kUnavailable, "too many connections at once"));
  }
  ++handshakes_;
  start_listener_handshake(
      std::move(socket), identity_, options_.patience,
      [this](const Hello& hello) { return admit(hello); },
      [this, from = std::move(from)](HandshakeOutcome outcome) {
        --handshakes_;
        if (!outcome.status.ok()) return log_stranger(from, outcome.status);
        keep(std::move(outcome));
      });
}

Status SocketMesh::admit(const Hello& hello) const {
  if (hello.rank <= identity_.hello.rank || !is_reached(static_cast<int>(hello.rank))) {
    return Status(StatusCode::kProtocol, "rank " + std::to_string(hello.rank) +
                                             " has no reason to connect to rank " +
                                             std::to_string(options_.rank));
  }
  if (slot(hello.lane, hello.rank).has_value()) {
    return Status(StatusCode::kProtocol, "rank " + std::to_string(hello.rank) + ", lane " +
                                             std::to_string(hello.lane) + " is connected already");
  }
  return Status();
}

void SocketMesh::keep(HandshakeOutcome outcome) {
  sockets_[outcome.peer.lane][outcome.peer.rank].emplace(std::move(outcome.socket));
  --missing_;
}

void SocketMesh::log_stranger(const std::string& from, const Status& why) {
  if (++strangers_ <= kLoggedStrangers) {
    logger_->warn("rank {}: dropped a connection from {}: {}", options_.rank, from,
                  why.to_string());
  }
}

bool SocketMesh::is_missing(int peer) const {
  const auto index = static_cast<std::size_t>(peer);
  return is_reached(peer) && std::ranges::any_of(sockets_, [index](const auto& lane) {
           return !lane[index].has_value();
         });
}

// Those that this rank connects to, and knows something about.
bool SocketMesh::misses_lower_ranks() const {
  for (int peer = 0; peer < options_.rank; ++peer)
    if (is_missing(peer)) return true;
  return false;
}

std::string SocketMesh::reason_of(int peer) const {
  const auto dialer = std::ranges::find_if(dialers_, [peer](const auto& each) {
    return each->peer() == peer && !each->last_error().ok();
  });
  if (dialer != dialers_.end()) return (*dialer)->last_error().to_string();
  return "no answer from " + address_of(peer);
}

// "rank 0 (connect to 10.0.0.1:99: Connection refused), rank 3, which should have connected to
// 10.0.0.2:77".
std::string SocketMesh::missing_ranks() const {
  std::string dialed;
  for (int peer = 0; peer < options_.rank; ++peer) {
    if (!is_missing(peer)) continue;
    dialed += fmt::format("{}{} ({})", dialed.empty() ? "rank " : ", ", peer, reason_of(peer));
  }
  std::string awaited;
  for (int peer = options_.rank + 1; peer < options_.world_size; ++peer) {
    if (is_missing(peer)) awaited += (awaited.empty() ? "rank " : ", ") + std::to_string(peer);
  }
  if (awaited.empty()) return dialed;
  if (!dialed.empty()) dialed += ", and ";
  return dialed + awaited + ", which should have connected to " + address_of(options_.rank);
}

void SocketMesh::log_missing_ranks() const {
  logger_->warn("rank {} cannot connect so far to {}{}", options_.rank, missing_ranks(), advice());
}

// Between hosts it is mostly the network.
std::string SocketMesh::advice() const {
  const auto own = split_host_port(address_of(options_.rank));
  const bool one_host = own && is_loopback(own->host);
  return one_host ? ""
                  : "; is a firewall between them, or should ranks use another network "
                    "(DLAUNCH_INTERFACE)?";
}

Status SocketMesh::too_late() const {
  std::string text =
      fmt::format("rank {} could not connect within {:.3g} s to {}", options_.rank,
                  std::chrono::duration<double>(options_.timeout).count(), missing_ranks());
  if (accept_error_) {
    text += "; " + Status::from_errno("accepting connections", accept_error_.value()).to_string();
  }
  return Status(StatusCode::kTimeout, text + advice());
}

Result<std::vector<std::vector<Descriptor>>> SocketMesh::release_sockets() {
  if (strangers_ > 0) {
    logger_->warn("rank {}: {} connections were dropped while the ranks met", options_.rank,
                  strangers_);
  }
  std::vector<std::vector<Descriptor>> released(sockets_.size());
  for (std::size_t lane = 0; lane < sockets_.size(); ++lane) {
    released[lane].resize(sockets_[lane].size());
    for (std::size_t peer = 0; peer < sockets_[lane].size(); ++peer) {
      if (!sockets_[lane][peer].has_value()) continue;
      std::error_code error;
      released[lane][peer] = Descriptor(sockets_[lane][peer]->release(error));
      if (!error) continue;
      return Status::about_peer(StatusCode::kPeerLost, static_cast<int>(peer),
                                "connection: " + error.message());
    }
  }
  return released;
}

}  // namespace

Result<std::vector<std::vector<Descriptor>>> connect_sockets(TcpListener listener,
                                                             const SocketMeshOptions& options) {
  try {
    SocketMesh mesh(std::move(listener).release(), options);
    DLAUNCH_RETURN_IF_ERROR(mesh.connect());
    return mesh.release_sockets();
  } catch (const std::system_error& error) {  // Asio without descriptors for its own use
    return Status(StatusCode::kIo, std::string("connecting to peers: ") + error.what());
  }
}

}  // namespace dlaunch
