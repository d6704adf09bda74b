#include "transport/shm/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

namespace dlaunch {
namespace {

constexpr int kType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
// While the system has too many descriptors in flight between processes.
constexpr std::chrono::milliseconds kPause{1};

Status closed() {
  return Status(StatusCode::kUnavailable, "the other side closed the connection");
}

union ControlBuffer {
  char bytes[CMSG_SPACE(sizeof(int) * kMaxPacketDescriptors)];
  cmsghdr alignment;
};

void take_descriptors(msghdr& message, std::vector<Descriptor>* into) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof number, sizeof number);
      Descriptor descriptor(number);  // closed at once if nobody wants it
      if (into != nullptr) into->push_back(std::move(descriptor));
    }
  }
}

}  // namespace

Result<LocalSocket> LocalSocket::listen() {
  Descriptor socket(::socket(AF_UNIX, kType, 0));
  if (!socket.is_open()) return Status::from_errno("socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // No more than the family: the system chooses an abstract name.
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)) != 0) {
    return Status::from_errno("bind", errno);
  }
  if (::listen(socket.get(), SOMAXCONN) != 0) return Status::from_errno("listen", errno);
  return LocalSocket(std::move(socket));
}

Result<std::string> LocalSocket::name() const {
  sockaddr_un address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Status::from_errno("getsockname", errno);
  }
  const std::size_t begin = offsetof(sockaddr_un, sun_path) + 1;
  return std::string(address.sun_path + 1, length > begin ? length - begin : 0);
}

Result<LocalSocket> LocalSocket::connect(const std::string& name, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) {
    return Status(StatusCode::kInvalidArgument, "'" + name + "' is no name of a local socket");
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const std::size_t length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  // Blocking: it waits, as long as it may send, while the listener's queue is full.
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return Status::from_errno("socket", errno);
  const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline.remaining()).count();
  const timeval limit{.tv_sec = left / 1'000'000, .tv_usec = std::max<long>(left % 1'000'000, 1)};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(length)) != 0) {
    if (errno == EAGAIN) return Status(StatusCode::kTimeout, "the listener takes nobody in");
    return Status::from_errno("connect", errno);
  }
  return LocalSocket(std::move(socket));
}

Result<LocalSocket> LocalSocket::accept() const {
  Descriptor socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.is_open()) return Status::from_errno("accept", errno);
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return Status::from_errno("SO_PEERCRED", errno);
  }
  if (peer.uid != ::geteuid()) {
    return Status(StatusCode::kUnauthenticated, "a process of user " + std::to_string(peer.uid));
  }
  return LocalSocket(std::move(socket));
}

Status LocalSocket::await(short what, Deadline deadline) const {
  pollfd wait{.fd = socket_.get(), .events = what, .revents = 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
  const int ready = ::poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(left, 1'000'000)));
  if (ready < 0 && errno != EINTR) return Status::from_errno("poll", errno);
  if (ready == 0 && deadline.expired()) return Status(StatusCode::kTimeout, "no answer");
  return Status();
}

Status LocalSocket::send(std::span<const std::byte> packet, std::span<const int> descriptors,
                         Deadline deadline) const {
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ControlBuffer control{};
  if (!descriptors.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  while (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EPIPE || errno == ECONNRESET) return closed();
    if (errno == ETOOMANYREFS) {  // others are about to take theirs
      ::poll(nullptr, 0, static_cast<int>(kPause.count()));
      if (deadline.expired()) return Status::from_errno("sendmsg", ETOOMANYREFS);
    } else if (errno == EAGAIN) {
      DLAUNCH_RETURN_IF_ERROR(await(POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Status::from_errno("sendmsg", errno);
    }
  }
  return Status();
}

Status LocalSocket::receive(std::span<std::byte> packet, std::vector<Descriptor>* descriptors,
                            Deadline deadline) const {
  ControlBuffer control{};
  bool ended = false;
  while (true) {
    iovec part{packet.data(), packet.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got >= 0) {
      take_descriptors(message, descriptors);
      if (got == 0) {
        // Linux looks for a packet and then for the end: between the two the last packet may have
        // come, with the end behind it. All that was sent has come now, so the second look tells.
        if (std::exchange(ended, true)) return closed();
        continue;
      }
      if ((message.msg_flags & MSG_CTRUNC) != 0) {
        return Status(StatusCode::kIo, "too many open files: raise `ulimit -n`");
      }
      if (static_cast<std::size_t>(got) == packet.size() && (message.msg_flags & MSG_TRUNC) == 0) {
        return Status();
      }
      return Status(StatusCode::kProtocol, "a packet of the wrong length");
    }
    if (errno == ECONNRESET) return closed();
    if (errno == EAGAIN) {
      DLAUNCH_RETURN_IF_ERROR(await(POLLIN, deadline));
    } else if (errno != EINTR) {
      return Status::from_errno("recvmsg", errno);
    }
  }
}

}  // namespace dlaunch
