// StoreSession: one client's connection to the store server. Belongs to the server's thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include "runtime/base/token.h"
#include "runtime/rendezvous/refusal_log.h"
#include "runtime/rendezvous/store_protocol.h"
#include "runtime/rendezvous/store_waits.h"

namespace dlaunch {

/// What all sessions of a server share. The counters may be read from any thread.
struct StoreSessionContext {
  StoreWaits& waits;
  std::string token;
  std::chrono::milliseconds handshake_timeout;
  RefusalLog refusals;
  std::atomic<std::uint64_t> accepted = 0;
  std::atomic<std::uint64_t> connected = 0;  // now, and proved
  std::atomic<std::uint64_t> requests = 0;
};

/// Keeps itself alive through its pending operations. Every way a connection ends leads through
/// close(), except the end of the server: then the waits go first, and this only frees its socket.
class StoreSession : public std::enable_shared_from_this<StoreSession> {
 public:
  StoreSession(asio::ip::tcp::socket socket, StoreSessionContext& context);

  /// Begins with the handshake.
  void start();
  /// Whether it is still in its handshake.
  bool awaits_proof() const { return socket_.is_open() && !authenticated_; }
  /// Ends the connection of a stranger.
  void refuse(const std::string& why, spdlog::level::level_enum level);

 private:
  void read_proof();
  void check_proof();
  void send_refusal();
  void read_requests();
  void handle_requests();
  store_protocol::Message stat(std::uint64_t id) const;
  void reply(const store_protocol::Message& response);
  void write();
  void written();
  template <typename Step>
  void guarded(const Step& step);
  void close();

  asio::ip::tcp::socket socket_;
  StoreSessionContext& context_;
  asio::steady_timer handshake_deadline_;
  std::string peer_;
  Nonce challenge_;
  std::array<char, sizeof(Nonce) + sizeof(Mac)> proof_{};
  bool authenticated_ = false;

  std::array<char, 16 << 10> chunk_{};
  store_protocol::FrameBuffer inbox_;
  std::string outbox_;            // responses that wait for the write under way
  std::string writing_;           // the write under way
  bool handling_paused_ = false;  // until the client has read its answers
  bool given_up_ = false;         // it is closed soon, and gets no answers any more
};

}  // namespace dlaunch
