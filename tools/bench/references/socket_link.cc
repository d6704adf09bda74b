#include "tools/bench/references/socket_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

namespace dlaunch::bench {
namespace {

int checked(int result, const char* call) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), call);
  return result;
}

sockaddr_in loopback_address(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// Listens, tells the peer where, and takes its connection.
int accept_from_peer(Communicator& world) {
  const int listener = checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  sockaddr_in address = loopback_address(0);
  socklen_t length = sizeof address;
  checked(bind(listener, reinterpret_cast<sockaddr*>(&address), length), "bind");
  checked(listen(listener, 1), "listen");
  checked(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), "getsockname");
  const std::array<std::int32_t, 1> port{ntohs(address.sin_port)};
  throw_if_error(world.send(port, 1));
  const int connection = checked(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), "accept");
  close(listener);
  return connection;
}

int connect_to_peer(Communicator& world) {
  std::array<std::int32_t, 1> port{};
  throw_if_error(world.recv(port, 0));
  const int connection = checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  const sockaddr_in address = loopback_address(static_cast<std::uint16_t>(port[0]));
  checked(connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address),
          "connect");
  return connection;
}

bool would_block() {
  return errno == EAGAIN || errno == EINTR;
}

}  // namespace

SocketLink::SocketLink(Communicator& world, Waiting waiting)
    : socket_(world.rank() == 0 ? accept_from_peer(world) : connect_to_peer(world)),
      flags_(MSG_NOSIGNAL | (waiting == Waiting::kSpinning ? MSG_DONTWAIT : 0)) {
  const int on = 1;
  checked(setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
}

SocketLink::~SocketLink() {
  close(socket_);
}

void SocketLink::send(const std::byte* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = ::send(socket_, data, bytes, flags_);
    if (sent < 0 && would_block()) continue;
    data += checked(static_cast<int>(sent), "send");
    bytes -= static_cast<std::size_t>(sent);
  }
}

void SocketLink::receive(std::byte* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t received = recv(socket_, data, bytes, flags_);
    if (received < 0 && would_block()) continue;
    if (received == 0) throw std::runtime_error("the other rank closed the reference socket");
    data += checked(static_cast<int>(received), "recv");
    bytes -= static_cast<std::size_t>(received);
  }
}

}  // namespace dlaunch::bench
