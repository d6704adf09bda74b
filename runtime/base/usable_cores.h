// How much time of its cores a container leaves to dlaunch and its ranks.
#pragma once

#include <optional>
#include <string>

namespace dlaunch {

/// How many cores' time the control groups of a process allow, from the content of its
/// /proc/PID/cgroup and the files in `root` (/sys/fs/cgroup): the least of its own group and all
/// above it. Nothing: as much as there is.
std::optional<double> cpu_quota(const std::string& cgroups, const std::string& root);
/// This process's.
std::optional<double> cpu_quota();

/// How many ranks have time for a core each: as many as there are usable cores, unless the quota is
/// less. At least 1.
int cores_with_time(int usable, std::optional<double> quota);
/// Here.
int cores_with_time();

}  // namespace dlaunch
