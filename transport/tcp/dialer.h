// Dialer: makes one connection to a lower rank and tries again until it stands. Internal to
// connect_mesh.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include "transport/tcp/handshake.h"

namespace dlaunch {

class Dialer {
 public:
  /// Called once, with the authenticated connection or with an error that makes trying again
  /// pointless.
  using Connected = std::function<void(HandshakeOutcome)>;

  /// `patience` is for one attempt. Neither `identity` nor the dialer may go away while the
  /// io_context runs.
  Dialer(asio::io_context& io, const HandshakeIdentity& identity, int peer, int lane,
         std::chrono::nanoseconds patience, std::string address, Connected connected);

  void start();
  int peer() const { return peer_; }
  /// Why the last attempt failed; ok while the first is under way.
  const Status& last_error() const { return last_error_; }

 private:
  void connect();
  void shake_hands(HandshakeOutcome outcome);
  void try_again(Status why);

  const HandshakeIdentity& identity_;
  int peer_;
  int lane_;
  std::chrono::nanoseconds patience_;
  std::string address_;
  Connected connected_;
  asio::ip::tcp::endpoint endpoint_;
  asio::ip::tcp::socket socket_;
  asio::steady_timer timer_;
  std::chrono::milliseconds pause_{10};
  Status last_error_;
};

}  // namespace dlaunch
