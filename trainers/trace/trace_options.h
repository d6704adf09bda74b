// What a trace of a run is to hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace dlaunch {

struct TraceOptions {
  std::string file;  // from the working directory; empty: no trace
  std::uint64_t first_step = 1;
  std::uint64_t last_step = std::numeric_limits<std::uint64_t>::max();
  std::size_t most_events = std::size_t{1} << 18U;  // of a rank, 40 bytes each
};

}  // namespace dlaunch
