// DescriptorRoom: how many files this process may have open, and how many it has.
#pragma once

#include <cstdint>

namespace dlaunch {

struct DescriptorRoom {
  int limit = 0;  // the hard one (`ulimit -Hn`), to which a process may raise its own
  int open = 0;   // of the descriptors below the limit

  int left() const { return limit - open; }
};

/// Nothing counts as open where there is no /proc.
DescriptorRoom descriptor_room();

/// More nobody needs who does not know better, and some programs walk over all they might have.
inline constexpr std::int64_t kUsualDescriptors = 65536;

/// Raises this process's limit (the soft one) to `enough` open files, as far as the hard one
/// allows, and returns what it is then. It is never lowered.
std::int64_t raise_descriptor_limit(std::int64_t enough);

}  // namespace dlaunch
