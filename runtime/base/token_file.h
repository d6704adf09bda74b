// Token files: a job's secret in a file, for jobs of several nodes.
#pragma once

#include <string>

#include "runtime/base/status.h"

namespace dlaunch {

/// Reads the token (raw bytes) from a file that holds it in hexadecimal. kInvalidArgument, naming
/// the file, if it cannot be read, holds no token, or is not this user's (or root's) alone: a
/// secret that others can read is none.
Result<std::string> read_token_file(const std::string& path);

}  // namespace dlaunch
