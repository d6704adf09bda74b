// The control group of a process: where the system tells its limits and what has become of it.
#pragma once

#include <cstdint>
#include <functional>
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

/// Calls `look` with the folder of the group and then with those of all that it is part of, whose
/// limits hold for it too.
void for_each_enclosing(const ControlGroup& group,
                        const std::function<void(const std::string& folder)>& look);

/// How many processes and threads the groups of a process allow to be at the same time, as
/// control_group() finds them; nothing: as many as the system does.
std::optional<std::uint64_t> most_processes(const std::string& cgroups, const std::string& root);

/// The same of the bytes of memory that they may use.
std::optional<std::uint64_t> most_memory(const std::string& cgroups, const std::string& root);

/// The content of this process's /proc/self/cgroup.
std::string own_control_groups();

inline constexpr const char* kControlGroups = "/sys/fs/cgroup";

}  // namespace dlaunch
