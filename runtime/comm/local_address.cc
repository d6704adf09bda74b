#include "runtime/comm/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace dlaunch {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

// The local end that the system gives a datagram socket connected to `target`. Connecting one sends
// nothing.
Result<std::string> local_end(const addrinfo& target) {
  const int socket = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return Status::from_errno("socket", errno);
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  Status status;
  if (::connect(socket, target.ai_addr, target.ai_addrlen) != 0) {
    status = Status::from_errno("connect", errno);
  } else if (::getsockname(socket, address, &length) != 0) {
    status = Status::from_errno("getsockname", errno);
  }
  ::close(socket);
  if (!status.ok()) return status;
  char text[NI_MAXHOST];
  if (::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
    return Status(StatusCode::kIo, "getnameinfo failed");
  }
  return own.ss_family == AF_INET6 ? "[" + std::string(text) + "]" : std::string(text);
}

}  // namespace

Result<std::string> local_address_towards(std::string_view host_port) {
  const auto unavailable = [&](const std::string& why) {
    return Status(StatusCode::kUnavailable, "no route to '" + std::string(host_port) + "': " + why);
  };
  const std::size_t colon = host_port.rfind(':');
  if (colon == std::string_view::npos) return unavailable("not of the form host:port");
  std::string host(host_port.substr(0, colon));
  const std::string port(host_port.substr(colon + 1));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return unavailable(::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  std::string reasons;
  for (const addrinfo* target = addresses.get(); target != nullptr; target = target->ai_next) {
    auto own = local_end(*target);
    if (own.ok()) return own;
    reasons = own.status().to_string();
  }
  return unavailable(reasons);
}

}  // namespace dlaunch
