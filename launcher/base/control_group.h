// The control group of a process: where the system tells its limits and what has become of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dlaunch {

struct ControlGroup {
  bool unified = false;  // version 2, where one hierarchy has all controllers
  std::string mount;     // the folder of the hierarchy, and
  std::string path;      // the group's place in it: "/a/b", or empty for the hierarchy's own
};

/// The group of `controller` ("memory"), from the content of a /proc/PID/cgroup; hierarchies are
/// folders in `root`. A container may have another view of them: there `mount` alone may be the
/// group's folder. Nothing: there is none.
std::optional<ControlGroup> control_group(const std::string& cgroups, std::string_view controller,
                                          const std::string& root);

/// The content of this process's /proc/self/cgroup.
std::string own_control_groups();

inline constexpr const char* kControlGroups = "/sys/fs/cgroup";

}  // namespace dlaunch
