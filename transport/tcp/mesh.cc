#include "transport/tcp/mesh.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include <asio/steady_timer.hpp>

#include "runtime/base/token.h"
#include "transport/tcp/dialer.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/listener_socket.h"

namespace dlaunch {
namespace {

using asio::ip::tcp;

// A connection that was accepted but has not proved itself is dropped after this.
constexpr std::chrono::seconds kPatience{10};
// Unproved connections beyond what is expected are dropped at once: strangers cannot use up the
// descriptors. A rank that is turned away so tries again.
constexpr int kSpareHandshakes = 256;
// Strangers that get a line of their own in the log.
constexpr int kLoggedStrangers = 20;
constexpr std::chrono::milliseconds kAcceptPause{20};

Status check_options(const MeshOptions& options) {
  const auto refuse = [](std::string why) {
    return Status(StatusCode::kInvalidArgument, "connect_mesh: " + std::move(why));
  };
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return refuse("rank " + std::to_string(options.rank) + " of a world of " +
                  std::to_string(options.world_size));
  }
  if (options.lanes < 1) return refuse(std::to_string(options.lanes) + " lanes");
  if (options.world_size == 1) return Status();
  if (options.addresses.size() != static_cast<std::size_t>(options.world_size)) {
    return refuse(std::to_string(options.addresses.size()) + " addresses for " +
                  std::to_string(options.world_size) + " ranks");
  }
  if (options.token.size() != kTokenBytes) return refuse("the token has the wrong length");
  return Status();
}

class Mesh {
 public:
  Mesh(std::unique_ptr<TcpListener::Socket> listener, const MeshOptions& options)
      : options_(options),
        logger_(options.logger ? options.logger : make_null_logger()),
        identity_{options.token,
                  {.rank = static_cast<std::uint32_t>(options.rank),
                   .world_size = static_cast<std::uint32_t>(options.world_size),
                   .lane = 0,
                   .lanes = static_cast<std::uint32_t>(options.lanes),
                   .job = hash_job(options.job_id)}},
        listener_(std::move(listener)),
        accept_timer_(listener_->io),
        missing_(static_cast<std::size_t>((options.world_size - 1) * options.lanes)) {
    const auto peers = static_cast<std::size_t>(options.world_size);
    sockets_.resize(static_cast<std::size_t>(options.lanes));
    for (auto& lane : sockets_) lane.resize(peers);
  }

  Status connect();
  Result<std::vector<std::unique_ptr<Endpoint>>> make_endpoints();

 private:
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

  const MeshOptions& options_;
  Logger logger_;
  HandshakeIdentity identity_;
  std::unique_ptr<TcpListener::Socket> listener_;  // its io_context runs everything here
  asio::steady_timer accept_timer_;
  std::vector<std::unique_ptr<Dialer>> dialers_;
  std::vector<std::vector<std::optional<tcp::socket>>> sockets_;  // by lane, then peer
  std::size_t missing_;
  int handshakes_ = 0;  // accepted connections that have not proved themselves
  int strangers_ = 0;
  Status failure_;
};

Status Mesh::connect() {
  const Deadline deadline = Deadline::after(options_.timeout);
  for (int peer = 0; peer < options_.rank; ++peer) {
    for (int lane = 0; lane < options_.lanes; ++lane) dial(peer, lane);
  }
  if (missing_ > 0) accept();
  while (missing_ > 0 && failure_.ok()) {
    if (deadline.expired()) return missing_ranks();
    listener_->io.run_one_until(deadline.when());
  }
  return failure_;
}

void Mesh::dial(int peer, int lane) {
  dialers_.push_back(std::make_unique<Dialer>(listener_->io, identity_, peer, lane,
                                              options_.addresses[static_cast<std::size_t>(peer)],
                                              [this](HandshakeOutcome outcome) {
                                                if (!outcome.status.ok()) {
                                                  if (failure_.ok()) failure_ = outcome.status;
                                                  return;
                                                }
                                                keep(std::move(outcome));
                                              }));
  dialers_.back()->start();
}

void Mesh::accept() {
  listener_->acceptor.async_accept([this](const std::error_code& error, tcp::socket socket) {
    if (!error) {
      greet(std::move(socket));
      return accept();
    }
    // Out of descriptors, or a connection that was gone before it was taken.
    accept_timer_.expires_after(kAcceptPause);
    accept_timer_.async_wait([this](const std::error_code& cancelled) {
      if (!cancelled) accept();
    });
  });
}

void Mesh::greet(tcp::socket socket) {
  std::error_code unknown;
  const tcp::endpoint remote = socket.remote_endpoint(unknown);
  std::string from = remote.address().to_string() + ":" + std::to_string(remote.port());
  if (handshakes_ >= static_cast<int>(missing_) + kSpareHandshakes) {
    return log_stranger(from, Status(StatusCode::kUnavailable, "too many connections at once"));
  }
  ++handshakes_;
  start_listener_handshake(
      std::move(socket), identity_, kPatience, [this](const Hello& hello) { return admit(hello); },
      [this, from = std::move(from)](HandshakeOutcome outcome) {
        --handshakes_;
        if (!outcome.status.ok()) return log_stranger(from, outcome.status);
        keep(std::move(outcome));
      });
}

Status Mesh::admit(const Hello& hello) const {
  if (hello.rank <= identity_.hello.rank) {
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

void Mesh::keep(HandshakeOutcome outcome) {
  sockets_[outcome.peer.lane][outcome.peer.rank].emplace(std::move(outcome.socket));
  --missing_;
}

void Mesh::log_stranger(const std::string& from, const Status& why) {
  if (++strangers_ <= kLoggedStrangers) {
    logger_->warn("rank {}: dropped a connection from {}: {}", options_.rank, from,
                  why.to_string());
  }
}

// Every missing rank once, with the reason where there is one.
Status Mesh::missing_ranks() const {
  std::string names;
  for (int peer = 0; peer < options_.world_size; ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    const bool absent = peer != options_.rank &&
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
  const auto seconds = std::chrono::duration<double>(options_.timeout).count();
  return Status(StatusCode::kTimeout, "rank " + std::to_string(options_.rank) +
                                          " could not connect within " + std::to_string(seconds) +
                                          " s to rank " + names);
}

Result<std::vector<std::unique_ptr<Endpoint>>> Mesh::make_endpoints() {
  if (strangers_ > 0) {
    logger_->warn("rank {}: {} connections were dropped while the ranks met", options_.rank,
                  strangers_);
  }
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (auto& lane : sockets_) {
    auto endpoint = std::make_unique<TcpEndpoint>(options_.rank, options_.world_size, options_.spin,
                                                  options_.describe);
    for (int peer = 0; peer < options_.world_size; ++peer) {
      auto& socket = lane[static_cast<std::size_t>(peer)];
      if (peer == options_.rank) continue;
      DLAUNCH_RETURN_IF_ERROR(endpoint->add_connection(peer, *std::exchange(socket, std::nullopt)));
    }
    endpoints.push_back(std::move(endpoint));
  }
  return endpoints;
}

}  // namespace

Result<std::vector<std::unique_ptr<Endpoint>>> connect_mesh(TcpListener listener,
                                                            const MeshOptions& options) {
  DLAUNCH_RETURN_IF_ERROR(check_options(options));
  try {
    Mesh mesh(std::move(listener).release(), options);
    DLAUNCH_RETURN_IF_ERROR(mesh.connect());
    return mesh.make_endpoints();
  } catch (const std::system_error& error) {  // Asio without descriptors for its own use
    return Status(StatusCode::kIo, std::string("connect_mesh: ") + error.what());
  }
}

}  // namespace dlaunch
