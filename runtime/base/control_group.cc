#include "runtime/base/control_group.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace dlaunch {
namespace {

// "cpu,cpuacct" has cpu.
bool lists(const std::string& controllers, std::string_view wanted) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == wanted) return true;
  }
  return false;
}

// The least number in this file of the group and of those that it is part of.
std::optional<std::uint64_t> least_in(const std::optional<ControlGroup>& group,
                                      const std::string& file) {
  std::optional<std::uint64_t> least;
  if (!group) return least;
  for_each_enclosing(*group, [&](const std::string& folder) {
    std::uint64_t most = 0;
    // Where there is no limit it is "max".
    if (std::ifstream(folder + "/" + file) >> most) least = std::min(least.value_or(most), most);
  });
  return least;
}

}  // namespace

// Lines are "HIERARCHY:CONTROLLERS:PATH"; the unified hierarchy is number 0 and lists none.
std::optional<ControlGroup> control_group(const std::string& cgroups, std::string_view controller,
                                          const std::string& root) {
  std::istringstream lines(cgroups);
  std::optional<ControlGroup> unified;
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (lists(controllers, controller)) {
      return ControlGroup{.mount = root + "/" + std::string(controller), .path = path};
    }
    if (controllers.empty()) unified = ControlGroup{.unified = true, .mount = root, .path = path};
  }
  return unified;
}

void for_each_enclosing(const ControlGroup& group,
                        const std::function<void(const std::string& folder)>& look) {
  for (std::string path = group.path;; path.erase(path.rfind('/'))) {
    look(group.mount + path);
    if (path.find('/') == std::string::npos) return;
  }
}

std::optional<std::uint64_t> most_processes(const std::string& cgroups, const std::string& root) {
  return least_in(control_group(cgroups, "pids", root), "pids.max");
}

std::optional<std::uint64_t> most_memory(const std::string& cgroups, const std::string& root) {
  const auto group = control_group(cgroups, "memory", root);
  return least_in(group, group && group->unified ? "memory.max" : "memory.limit_in_bytes");
}

std::string own_control_groups() {
  std::ostringstream content;
  content << std::ifstream("/proc/self/cgroup").rdbuf();
  return content.str();
}

}  // namespace dlaunch
