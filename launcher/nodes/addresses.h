// Numeric addresses of hosts as text, those of IPv6 with brackets ("[::1]") or without.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

/// Where the colon is that stands before the port of "host:29500" or "[::1]:29500"; npos where
/// there is none: "host", "[::1]", "::1". Without brackets all of "fd00::1:29500" is the host.
std::size_t before_port(std::string_view endpoint);

/// A name, or a number, one of IPv6 with brackets or without: nothing that only an address with a
/// port, or a URL, has.
bool is_host(std::string_view host);

/// "::1" -> "[::1]:29500".
std::string host_port(std::string_view host, int port);

/// An address of loopback, or a name that means it everywhere.
bool is_loopback_by_name(std::string_view host);

/// "0.0.0.0" or "::": all addresses of whoever listens there.
bool is_unspecified(std::string_view address);

/// Where whoever hosts something at `host` is to listen; `own` are those of the host's addresses,
/// at least one, that are this machine's. "::" stands for all addresses of either kind: a name that
/// leads to loopback here (the own name, in many an /etc/hosts) leads elsewhere for others, and one
/// that has several addresses is reached by others at any of them.
std::string address_to_serve(std::string_view host, const std::vector<std::string>& own);

}  // namespace dlaunch
