// What stands in front of a rank's lines in dlaunch's output.
#pragma once

#include <string>

namespace dlaunch {

/// "[rank 3] "
inline std::string rank_prefix(int rank) {
  return "[rank " + std::to_string(rank) + "] ";
}

}  // namespace dlaunch
