#include "launcher/nodes/addresses.h"

#include <algorithm>

#include <arpa/inet.h>

#include "runtime/base/host_address.h"

namespace dlaunch {
namespace {

// Without brackets; it may name its interface: "fe80::1%eth0".
bool is_ipv6(std::string_view address) {
  in6_addr parsed{};
  return inet_pton(AF_INET6, std::string(address.substr(0, address.find('%'))).c_str(), &parsed) ==
         1;
}

}  // namespace

std::size_t before_port(std::string_view endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  const std::string_view host = endpoint.substr(0, colon);
  // Before a port, colons of the host's own are within brackets. Otherwise a short last group of
  // IPv6 could be either.
  const bool bare = host.find(':') != std::string_view::npos && !host.ends_with(']');
  return bare ? std::string_view::npos : colon;
}

bool is_host(std::string_view host) {
  const std::string_view bare = without_brackets(host);
  if (is_ipv6(bare)) return true;
  return !host.empty() && host.find_first_of(":/[]") == std::string_view::npos;
}

std::string host_port(std::string_view host, int port) {
  const std::string bare(without_brackets(host));
  return (bare.find(':') == std::string::npos ? bare : "[" + bare + "]") + ":" +
         std::to_string(port);
}

bool is_loopback_by_name(std::string_view host) {
  return is_loopback(host) || host == "localhost" || host.ends_with(".localhost") ||
         host == "ip6-localhost" || host == "ip6-loopback";
}

bool is_unspecified(std::string_view address) {
  const std::string_view bare = without_brackets(address);
  return bare == "0.0.0.0" || bare == "::";
}

std::string address_to_serve(std::string_view host, const std::vector<std::string>& own) {
  const std::string& first = own.front();
  if (without_brackets(host) == first || host == "localhost") return first;
  const bool several = std::ranges::any_of(own, [&](const auto& each) { return each != first; });
  return several || is_loopback(first) ? "::" : first;
}

}  // namespace dlaunch
