#include "transport/tcp/dialer.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <system_error>
#include <utility>

#include "runtime/base/descriptor.h"
#include "transport/tcp/pacing.h"

namespace dlaunch {
namespace {

using asio::ip::tcp;

constexpr std::chrono::milliseconds kLongestPause{500};

}  // namespace

Dialer::Dialer(asio::io_context& io, const HandshakeIdentity& identity, int peer, int lane,
               std::string address, Connected connected)
    : identity_(identity),
      peer_(peer),
      lane_(lane),
      address_(std::move(address)),
      connected_(std::move(connected)),
      socket_(io),
      resolver_(io),
      timer_(io) {}

void Dialer::start() {
  resolve();
}

void Dialer::resolve() {
  const std::size_t colon = address_.rfind(':');
  std::string host = address_.substr(0, colon);
  const std::string port = colon == std::string::npos ? "" : address_.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  std::uint16_t number = 0;
  const auto [end, parsed] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (parsed != std::errc() || end != port.data() + port.size() || number == 0 || host.empty()) {
    return connected_({Status::about_peer(StatusCode::kInvalidArgument, peer_,
                                          "'" + address_ + "' is no address (host:port)"),
                       std::move(socket_),
                       {}});
  }
  std::error_code no_number;
  const asio::ip::address address = asio::ip::make_address(host, no_number);
  if (!no_number) {
    return connect(
        tcp::resolver::results_type::create(tcp::endpoint(address, number), host, port).begin());
  }
  resolver_.async_resolve(
      host, port,
      [this](const std::error_code& error, const tcp::resolver::results_type& addresses) {
        if (error) {
          return try_again(Status(StatusCode::kUnavailable, address_ + ": " + error.message()));
        }
        connect(addresses.begin());
      });
}

// To this address, else to the next one. (Which is asio::async_connect(), but for the option.)
void Dialer::connect(const tcp::resolver::results_type::iterator& address) {
  const tcp::endpoint endpoint = address->endpoint();
  std::error_code unopened;  // what connecting fails with, then
  socket_.close(unopened);
  socket_.open(endpoint.protocol(), unopened);
  if (!unopened) {
    close_on_exec(socket_.native_handle());
    begin_unpaced(socket_.native_handle());
  }
  socket_.async_connect(endpoint, [this, address](const std::error_code& error) {
    if (error) {
      const auto next = std::next(address);
      if (next != tcp::resolver::results_type::iterator()) return connect(next);
      return try_again(
          Status(StatusCode::kUnavailable, "connect to " + address_ + ": " + error.message()));
    }
    start_connector_handshake(
        std::move(socket_), identity_, static_cast<std::uint32_t>(lane_),
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
    if (!error) resolve();
  });
}

}  // namespace dlaunch
