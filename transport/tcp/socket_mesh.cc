#include "transport/tcp/socket_mesh.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <asio/steady_timer.hpp>

#include "runtime/base/descriptor.h"
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
  bool is_reached(int peer) const {
    return peer != options_.rank && !options_.addresses[static_cast<std::size_t>(peer)].empty();
  }
  void dial(int peer, int lane);
  void accept();
  void greet(tcp::socket socket);
  Status admit(const Hello& hello) const;
  void keep(HandshakeOutcome outcome);
  void log_stranger(const std::string& from, const Status& why);
  Status missing_ranks() const;
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
  for (int peer = 0; peer < options_.rank; ++peer) {
    if (!is_reached(peer)) continue;
    for (int lane = 0; lane < options_.lanes; ++lane) dial(peer, lane);
  }
  if (missing_ > 0) accept();
  while (missing_ > 0 && failure_.ok()) {
    if (deadline.expired()) return missing_ranks();
    listener_->io.run_one_until(deadline.when());
  }
  return failure_;
}

void SocketMesh::dial(int peer, int lane) {
  dialers_.push_back(std::make_unique<Dialer>(
      listener_->io, identity_, peer, lane, options_.patience,
      options_.addresses[static_cast<std::size_t>(peer)], [this](HandshakeOutcome outcome) {
        if (!outcome.status.ok()) {
          if (failure_.ok()) failure_ = outcome.status;
          return;
        }
        keep(std::move(outcome));
      }));
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
  const tcp::endpoint remote = socket.remote_endpoint(unknown);
  std::string from = remote.address().to_string() + ":" + std::to_string(remote.port());
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

// Every missing rank once, with the reason where there is one.
Status SocketMesh::missing_ranks() const {
  std::string names;
  for (int peer = 0; peer < options_.world_size; ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    const bool absent = is_reached(peer) &&
                        std::any_of(sockets_.begin(), sockets_.end(),
                                    [index](const auto& lane) { return !lane[index].has_value(); });
    if (!absent) continue;
    if (!names.empty()) names += ", ";
    names += std::to_string(peer);
    const auto dialer = std::find_if(dialers_.begin(), dialers_.end(), [peer](const auto& each) {
      return each->peer() == peer && !each->last_error().ok();
    });
    if (dialer != dialers_.end()) names += " (" + (*dialer)->last_error().to_string() + ")";
  }
  if (accept_error_) {
    names += "; " + Status::from_errno("accepting connections", accept_error_.value()).to_string();
  }
  const auto seconds = std::chrono::duration<double>(options_.timeout).count();
  return Status(StatusCode::kTimeout,
                fmt::format("rank {} could not connect within {:.3g} s to rank {}", options_.rank,
                            seconds, names));
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
