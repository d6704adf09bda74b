// Which hardware threads are near each other: of one core, one last-level cache, one package, one
// NUMA node.
//
// Read from /sys rather than through hwloc: that reads the whole machine, devices included, which
// takes longer than starting a rank, and dlaunch wants four numbers of each hardware thread.
#pragma once

#include <string>
#include <vector>

namespace dlaunch {

/// A hardware thread, which the kernel calls a CPU. What it shares with others has the number of
/// the lowest thread that does; the NUMA node has its own.
struct HardwareThread {
  int number;
  int node = 0;
  int package = 0;
  int cache = 0;
  int core = 0;
};

/// The hardware threads `numbers`, neighbours next to each other. What `sys` (/sys/devices/system)
/// does not tell counts as not shared for a core and as shared for the rest.
std::vector<HardwareThread> read_topology(const std::vector<int>& numbers,
                                          const std::string& sys = "/sys/devices/system");

}  // namespace dlaunch
