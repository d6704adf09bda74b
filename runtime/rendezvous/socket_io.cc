#include "runtime/rendezvous/socket_io.h"

#include <cerrno>
#include <climits>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/host_address.h"

namespace dlaunch {
namespace {

// Waits until `events` can be done without blocking; false if the deadline passed.
Result<bool> wait_for(int socket, short events, Deadline deadline) {
  while (true) {
    // Rounded up, so that the last fraction of a millisecond is not spent in a busy loop.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
    pollfd waiting{.fd = socket, .events = events, .revents = 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::min<long long>(left, INT_MAX)));
    if (ready > 0) return true;
    if (ready == 0 && deadline.expired()) return false;
    if (ready < 0 && errno != EINTR) return Status::from_errno("poll", errno);
  }
}

Status connection_error(int error_number) {
  if (error_number == ECONNRESET || error_number == EPIPE) {
    return Status(StatusCode::kPeerLost, "connection reset");
  }
  return Status::from_errno("socket", error_number);
}

Status try_connect(int socket, const HostAddress& target, Deadline deadline) {
  if (connect(socket, target.get(), target.length) == 0) return {};
  if (errno != EINPROGRESS) {
    return Status(StatusCode::kUnavailable, Status::from_errno("connect", errno).to_string());
  }
  auto ready = wait_for(socket, POLLOUT, deadline);
  if (!ready.ok()) return ready.status();
  if (!*ready) return Status(StatusCode::kTimeout, "connect: no answer in time");
  int error_number = 0;
  socklen_t length = sizeof(error_number);
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error_number, &length);
  if (error_number == 0) return {};
  return Status(StatusCode::kUnavailable, Status::from_errno("connect", error_number).to_string());
}

}  // namespace

Result<int> connect_socket(std::string_view address, Deadline deadline) {
  const auto parts = split_host_port(address);
  if (!parts)
    return Status(StatusCode::kInvalidArgument,
                  "an address is written host:port, with a port from 1 to 65535");
  const auto found = find_host(parts->host, parts->port, deadline);
  if (!found.ok()) return found.status();

  auto left = static_cast<int>(found->addresses.size());
  Status status(StatusCode::kUnavailable, "no address of a kind that this system has");
  for (const HostAddress& target : found->addresses) {
    const auto share = Deadline::after(deadline.remaining() / left--);
    const int socket = ::socket(target.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket < 0 && errno == EAFNOSUPPORT) continue;
    if (socket < 0) return Status::from_errno("socket", errno);
    // One that is silent leaves time for the others.
    status = try_connect(socket, target, share);
    if (status.ok()) {
      const int on = 1;
      setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      retransmit_every_second(socket);
      return socket;
    }
    close(socket);
  }
  return status;
}

void retransmit_every_second(int socket) {
  constexpr int kRtoMaxMs = 44;  // TCP_RTO_MAX_MS, which older headers lack
  const int milliseconds = 1000;
  setsockopt(socket, IPPROTO_TCP, kRtoMaxMs, &milliseconds, sizeof(milliseconds));
}

Status send_all(int socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      auto ready = wait_for(socket, POLLOUT, deadline);
      if (!ready.ok()) return ready.status();
      if (!*ready) return Status(StatusCode::kTimeout, "could not send in time");
    } else if (errno != EINTR) {
      return connection_error(errno);
    }
  }
  return {};
}

Result<std::size_t> receive_some(int socket, char* buffer, std::size_t capacity,
                                 Deadline deadline) {
  while (true) {
    const ssize_t received = recv(socket, buffer, capacity, 0);
    if (received > 0) return static_cast<std::size_t>(received);
    if (received == 0) return Status(StatusCode::kPeerLost, "connection closed");
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      auto ready = wait_for(socket, POLLIN, deadline);
      if (!ready.ok()) return ready.status();
      if (!*ready) return std::size_t{0};
    } else if (errno != EINTR) {
      return connection_error(errno);
    }
  }
}

Status receive_exactly(int socket, char* buffer, std::size_t bytes, Deadline deadline) {
  while (bytes > 0) {
    auto received = receive_some(socket, buffer, bytes, deadline);
    if (!received.ok()) return received.status();
    if (*received == 0) return Status(StatusCode::kTimeout, "no answer in time");
    buffer += *received;
    bytes -= *received;
  }
  return {};
}

}  // namespace dlaunch
