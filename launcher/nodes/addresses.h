// Numeric addresses of hosts as text, those of IPv6 with brackets ("[::1]") or without.
#pragma once

#include <string>
#include <string_view>

namespace dlaunch {

/// "[::1]" -> "::1": for a resolver, not the beginning of "host:port".
std::string_view without_brackets(std::string_view address);

/// "::1" -> "[::1]:29500".
std::string host_port(std::string_view host, int port);

bool is_loopback(std::string_view address);

/// "0.0.0.0" or "::": all addresses of whoever listens there.
bool is_unspecified(std::string_view address);

}  // namespace dlaunch
