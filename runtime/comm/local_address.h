// Under which address other nodes reach this process.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace dlaunch {

/// The numeric address of the interface through which this host would send to `host_port`
/// ("host:port" or "[host]:port"); an IPv6 address comes in brackets. Sends nothing. kUnavailable
/// if there is no route or no such host. Any thread.
Result<std::string> local_address_towards(std::string_view host_port);

}  // namespace dlaunch
