#include "runtime/base/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "runtime/base/control_group.h"

namespace dlaunch {
namespace {

// Of the group whose folder this is. Where there is no limit the quota is "max" or -1.
std::optional<double> quota_in(const std::string& folder, bool unified) {
  double quota = 0;
  double period = 0;
  if (unified) {
    std::ifstream(folder + "/cpu.max") >> quota >> period;
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  if (quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

}  // namespace

std::vector<int> usable_hardware_threads() {
  std::vector<int> numbers;
  cpu_set_t set;
  // Fails only where there are more than the set has room for; then nobody is bound.
  if (sched_getaffinity(0, sizeof set, &set) != 0) return numbers;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(number, &set)) numbers.push_back(number);
  }
  return numbers;
}

int usable_cores() {
  const auto cores = static_cast<int>(usable_hardware_threads().size());
  return cores > 0 ? cores : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::optional<double> cpu_quota(const std::string& cgroups, const std::string& root) {
  const auto group = control_group(cgroups, "cpu", root);
  if (!group) return std::nullopt;
  std::optional<double> least;
  for_each_enclosing(*group, [&](const std::string& folder) {
    const auto quota = quota_in(folder, group->unified);
    if (quota) least = std::min(least.value_or(*quota), *quota);
  });
  return least;
}

std::optional<double> cpu_quota() {
  return cpu_quota(own_control_groups(), kControlGroups);
}

int cores_with_time(int usable, std::optional<double> quota) {
  const double time = quota.value_or(usable);
  return time >= usable ? usable : std::max(1, static_cast<int>(time));
}

int cores_with_time() {
  return cores_with_time(usable_cores(), cpu_quota());
}

}  // namespace dlaunch
