#include "transport/tcp/dialer.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "runtime/base/descriptor.h"
#include "runtime/base/host_address.h"
#include "transport/tcp/pacing.h"

namespace dlaunch {
namespace {

constexpr std::chrono::milliseconds kLongestPause{500};

}  // namespace

Dialer::Dialer(asio::io_context& io, const HandshakeIdentity& identity, int peer, int lane,
               std::chrono::nanoseconds patience, std::string address, Connected connected)
    : identity_(identity),
      peer_(peer),
      lane_(lane),
      patience_(patience),
      address_(std::move(address)),
      connected_(std::move(connected)),
      socket_(io),
      timer_(io) {}

void Dialer::start() {
  const auto parts = split_host_port(address_);
  std::uint16_t port = 0;
  std::error_code no_number;
  if (parts) {
    const char* const end = parts->port.data() + parts->port.size();
    const auto parsed = std::from_chars(parts->port.data(), end, port);
    if (parsed.ec != std::errc() || parsed.ptr != end) port = 0;
    endpoint_ = {asio::ip::make_address(parts->host, no_number), port};
  }
  if (port == 0 || no_number) {
    return connected_({Status::about_peer(StatusCode::kInvalidArgument, peer_,
                                          "'" + address_ + "' is no numeric address (host:port)"),
                       std::move(socket_),
                       {}});
  }
  connect();
}

void Dialer::connect() {
  std::error_code unopened;  // what connecting fails with, then
  socket_.open(endpoint_.protocol(), unopened);
  if (!unopened) {
    close_on_exec(socket_.native_handle());
    begin_unpaced(socket_.native_handle());
  }
  timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(patience_));
  timer_.async_wait([this](const std::error_code& cancelled) {
    std::error_code ignored;
    if (!cancelled) socket_.close(ignored);
  });
  socket_.async_connect(endpoint_, [this](const std::error_code& error) {
    timer_.cancel();
    if (error == asio::error::operation_aborted) {
      return try_again(
          Status(StatusCode::kUnavailable, "connect to " + address_ + ": no answer in time"));
    }
    if (error) {
      return try_again(
          Status(StatusCode::kUnavailable, "connect to " + address_ + ": " + error.message()));
    }
    start_connector_handshake(
        std::move(socket_), identity_, static_cast<std::uint32_t>(lane_), patience_,
        [this](HandshakeOutcome outcome) { shake_hands(std::move(outcome)); });
  });
}

void Dialer::shake_hands(HandshakeOutcome outcome) {
  if (outcome.status.code() == StatusCode::kUnauthenticated) {
    outcome.status = Status::about_peer(StatusCode::kUnauthenticated, peer_,
                                        address_ + " " + outcome.status.to_string());
    return connected_(std::move(outcome));
  }
  if (!outcome.status.ok()) return try_again(outcome.status.within(address_));
  if (outcome.peer.rank != static_cast<std::uint32_t>(peer_)) {
    return try_again(
        Status(StatusCode::kProtocol,
               address_ + ": rank " + std::to_string(outcome.peer.rank) + " answered there"));
  }
  connected_(std::move(outcome));
}

void Dialer::try_again(Status why) {
  last_error_ = std::move(why);
  std::error_code ignored;
  socket_.close(ignored);
  timer_.expires_after(pause_);
  pause_ = std::min(pause_ * 2, kLongestPause);
  timer_.async_wait([this](const std::error_code& error) {
    if (!error) connect();
  });
}

}  // namespace dlaunch
