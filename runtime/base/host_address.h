// Addresses of hosts: taken apart, and looked up with a deadline.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace dlaunch {

struct HostPort {
  std::string host;  // of IPv6 without brackets
  std::string port;
};
/// Of "host:port" or "[host]:port"; nothing if one of the two is missing, or the port is no number
/// from 1 to 65535.
std::optional<HostPort> split_host_port(std::string_view address);

/// "[::1]" -> "::1": for a resolver, not the beginning of "host:port".
std::string_view without_brackets(std::string_view address);

/// Of a numeric address, one of IPv6 with brackets or without.
bool is_loopback(std::string_view address);

struct HostAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

/// "127.0.0.1", "::1", "fe80::1%eth0": without brackets; empty for one of another kind.
std::string numeric_text(const sockaddr* address);

/// Of an address with its port, "10.0.0.1:80" or "[::1]:80". One of IPv4 is written as such, also
/// where a server of both kinds sees it as one of IPv6.
std::string endpoint_text(const sockaddr* address);

struct FoundHost {
  std::string canonical_name;          // with its domain, if the system knows one
  std::vector<HostAddress> addresses;  // at least one, in the order in which to try them (RFC 6724)
};

/// The addresses of `host`, a name or a number, one of IPv6 with brackets or without, and `port` (a
/// number; empty: 0). kUnavailable with what the resolver says. kTimeout after the deadline, for
/// getaddrinfo() may wait for name servers longer than anybody here would, and cannot be
/// interrupted: it goes on in a thread of its own, which is left to itself then and takes no
/// signals. Any thread.
Result<FoundHost> find_host(std::string_view host, std::string_view port, Deadline deadline);

}  // namespace dlaunch
