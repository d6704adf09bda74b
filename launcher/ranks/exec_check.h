// Whether the system can execute a program, without running it.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace dlaunch {

/// What execve's `error` for that program means:
///   kNotFound     the program, or the interpreter its first line names, does not exist
///   kInvalidArgument  it cannot be executed
///   kIo           the system is out of something
Status exec_error(const std::string& path, int error);

/// Has a child execute it and ends that before its first instruction, as a debugger could, then has
/// its loader look for its shared libraries; what is missing the loader says on stderr.
/// exec_error if that cannot be, kNotFound if a library is missing; ok also if it cannot be found
/// out, as where nothing may be traced.
Status check_exec(const std::string& path, const std::vector<std::string>& command);

}  // namespace dlaunch
