#include "runtime/comm/local_address.h"

#include <sys/socket.h>

#include <cerrno>

#include "runtime/base/descriptor.h"
#include "runtime/base/host_address.h"

namespace dlaunch {
namespace {

// The local end that the system gives a datagram socket connected to `target`. Connecting one sends
// nothing.
Result<std::string> local_end(const HostAddress& target) {
  const Descriptor socket(::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return Status::from_errno("socket", errno);
  if (::connect(socket.get(), target.get(), target.length) != 0) {
    return Status::from_errno("connect", errno);
  }
  HostAddress own;
  own.length = sizeof own.storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0) {
    return Status::from_errno("getsockname", errno);
  }
  const std::string text = numeric_text(own.get());
  return own.family() == AF_INET6 ? "[" + text + "]" : text;
}

}  // namespace

Result<std::string> local_address_towards(std::string_view address, Deadline deadline) {
  const auto unavailable = [&](const std::string& why) {
    return Status(StatusCode::kUnavailable, "no route to '" + std::string(address) + "': " + why);
  };
  const auto parts = split_host_port(address);
  if (!parts) return unavailable("not of the form host:port, with a port from 1 to 65535");
  const auto found = find_host(parts->host, parts->port, deadline);
  if (!found.ok()) return unavailable(found.status().to_string());
  Status last;
  for (const HostAddress& target : found->addresses) {
    auto own = local_end(target);
    if (own.ok()) return own;
    last = own.status();
  }
  return unavailable(last.to_string());
}

}  // namespace dlaunch
