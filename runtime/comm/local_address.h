// Under which address other nodes reach this process.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// The numeric address of the interface through which this host would send to `address`
/// ("host:port" or "[host]:port"); one of IPv6 comes in brackets. Sends nothing there. kUnavailable
/// if there is no route or no such host, or none that is known by the deadline. Any thread.
Result<std::string> local_address_towards(std::string_view address, Deadline deadline);

}  // namespace dlaunch
