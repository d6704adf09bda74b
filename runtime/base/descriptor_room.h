// DescriptorRoom: how many files this process may have open, and how many it has.
#pragma once

namespace dlaunch {

struct DescriptorRoom {
  int limit = 0;  // `ulimit -n`, as it is now
  int open = 0;   // of the descriptors below the limit

  int left() const { return limit - open; }
};

/// Nothing counts as open where /proc cannot be read.
DescriptorRoom descriptor_room();

}  // namespace dlaunch
