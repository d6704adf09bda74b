// Which hardware threads there are to use, and how much of their time a container leaves.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dlaunch {

/// The numbers that the affinity mask of the calling thread allows.
std::vector<int> usable_hardware_threads();
/// How many they are.
int usable_cores();

/// How many cores' time the control groups of a process allow, from the content of its
/// /proc/PID/cgroup and the files in `root` (/sys/fs/cgroup): the least of its own group and all
/// above it. Nothing: as much as there is.
std::optional<double> cpu_quota(const std::string& cgroups, const std::string& root);
/// This process's.
std::optional<double> cpu_quota();

/// How many ranks, or threads, have time for a core each: as many as there are usable cores, unless
/// the quota is less. At least 1.
int cores_with_time(int usable, std::optional<double> quota);
/// Here.
int cores_with_time();

}  // namespace dlaunch
