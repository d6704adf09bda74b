// What the kernel knows about a process at this moment, from /proc.
#pragma once

#include <sys/types.h>

#include <string_view>

namespace dlaunch {

/// "running", "sleeping", "waiting for a device", "stopped by a signal", "being traced", "a
/// zombie", or "gone".
std::string_view process_state(pid_t pid);

}  // namespace dlaunch
