#include "transport/tcp/listener.h"

#include <system_error>
#include <utility>

#include <asio/ip/v6_only.hpp>

#include "runtime/base/descriptor.h"
#include "runtime/base/descriptor_room.h"
#include "transport/tcp/listener_socket.h"
#include "transport/tcp/pacing.h"

namespace dlaunch {
namespace {

using asio::ip::tcp;

Status failed(const char* call, const std::error_code& error) {
  return Status(StatusCode::kIo, std::string("TCP listener: ") + call + ": " + error.message());
}

Status listen_on(tcp::acceptor& acceptor, const tcp::endpoint& address) {
  std::error_code error;
  acceptor.open(address.protocol(), error);
  if (error) return failed("socket", error);
  close_on_exec(acceptor.native_handle());
  if (address.protocol() == tcp::v6()) {
    acceptor.set_option(asio::ip::v6_only(false), error);
    if (error) return failed("IPV6_V6ONLY", error);
  }
  begin_unpaced(acceptor.native_handle());
  acceptor.bind(address, error);
  if (error) return failed("bind", error);
  // All ranks connect at about the same time; a full backlog would cost them a second.
  acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed("listen", error);
  return Status();
}

}  // namespace

TcpListener::TcpListener(std::unique_ptr<Socket> socket) : socket_(std::move(socket)) {}
TcpListener::~TcpListener() = default;
TcpListener::TcpListener(TcpListener&&) noexcept = default;
TcpListener& TcpListener::operator=(TcpListener&&) noexcept = default;

Result<TcpListener> TcpListener::open(Bind bind) try {
  // A large world needs more connections than the usual 1024.
  raise_descriptor_limit(kUsualDescriptors);
  auto socket = std::make_unique<Socket>();
  Status listening;
  if (bind == Bind::kLoopback) {
    listening = listen_on(socket->acceptor, {asio::ip::address_v4::loopback(), 0});
  } else {
    listening = listen_on(socket->acceptor, {tcp::v6(), 0});  // also takes IPv4
    if (!listening.ok()) {
      socket = std::make_unique<Socket>();
      listening = listen_on(socket->acceptor, {tcp::v4(), 0});
    }
  }
  DLAUNCH_RETURN_IF_ERROR(listening);
  std::error_code error;
  socket->port = socket->acceptor.local_endpoint(error).port();
  if (error) return failed("getsockname", error);
  return TcpListener(std::move(socket));
} catch (const std::system_error& error) {  // Asio without descriptors for its own use
  return failed("making it", error.code());
}

std::uint16_t TcpListener::port() const {
  return socket_->port;
}

std::unique_ptr<TcpListener::Socket> TcpListener::release() && {
  return std::move(socket_);
}

}  // namespace dlaunch
