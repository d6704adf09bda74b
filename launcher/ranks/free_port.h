// A TCP port for MASTER_PORT: free, and likely to stay free until rank 0 binds it.
#pragma once

#include <cstdint>

#include "runtime/base/status.h"

namespace dlaunch {

/// A port of 127.0.0.1 that nobody holds. It is taken from below the range out of which the system
/// serves outgoing connections and port-0 listeners, so that none of those takes it first; nothing
/// holds it meanwhile. kIo: no port is free.
Result<std::uint16_t> find_free_port();

}  // namespace dlaunch
