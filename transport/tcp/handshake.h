// The opening of a connection: proof of the job's token by both sides (runtime/base/token.h), then
// a Hello from both. Nothing is read from a peer before it has proved the token.
//
//   listener -> connector   challenge
//   connector -> listener   own challenge, proof, hello
//   listener -> connector   proof, hello
//
// Runs on the io_context of its socket and thread. Internal to the TCP transport.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <asio/ip/tcp.hpp>

#include "runtime/base/status.h"
#include "transport/tcp/hello.h"

namespace dlaunch {

/// How a handshake went. On success `socket` is ready for frames and `peer` is who is there.
struct HandshakeOutcome {
  Status status;
  asio::ip::tcp::socket socket;
  Hello peer;
};
using HandshakeDone = std::function<void(HandshakeOutcome)>;
/// Whether a peer that has proved the token may come in; called before it is answered.
using HandshakeAdmission = std::function<Status(const Hello&)>;

/// This rank's side of every handshake. Outlives them.
struct HandshakeIdentity {
  std::string token;
  Hello hello;  // of this rank; the lane is set for each connection
};

/// The listener's part. A connection that has not proved itself within `patience` is dropped. A
/// bystander's silence or garbage ends in `done` with an error.
void start_listener_handshake(asio::ip::tcp::socket socket, const HandshakeIdentity& identity,
                              std::chrono::nanoseconds patience, HandshakeAdmission admission,
                              HandshakeDone done);

/// The connector's part, for `lane`. kTimeout if the challenge has not come within `patience`;
/// kUnauthenticated if the listener does not know the token.
void start_connector_handshake(asio::ip::tcp::socket socket, const HandshakeIdentity& identity,
                               std::uint32_t lane, std::chrono::nanoseconds patience,
                               HandshakeDone done);

}  // namespace dlaunch
