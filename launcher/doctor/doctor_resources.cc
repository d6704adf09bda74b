// doctor: limits and cores.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

#include <sys/resource.h>
#include <unistd.h>

#include "launcher/base/number_list.h"
#include "launcher/doctor/doctor.h"
#include "launcher/ranks/binding.h"
#include "launcher/ranks/topology.h"
#include "runtime/base/control_group.h"
#include "runtime/base/usable_cores.h"

namespace dlaunch {
namespace {

constexpr rlim_t kEnoughFiles = 4096;
constexpr rlim_t kEnoughProcesses = 4096;
constexpr std::uint64_t kEnoughInGroup = 1024;  // of one job, not of all of a user

rlimit limit_on(int resource) {
  rlimit limit{};
  getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  return limit;
}

std::string shown(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

Finding open_files() {
  const rlimit limit = limit_on(RLIMIT_NOFILE);
  return {.good = limit.rlim_max >= kEnoughFiles,
          .subject = "open files",
          .text = "up to " + shown(limit.rlim_max) + " (dlaunch raises the soft limit itself)",
          .advice =
              "hundreds of ranks need more: raise the hard limit (ulimit -Hn, LimitNOFILE=, "
              "docker --ulimit nofile)"};
}

// Root is bound by no limit of its own, unless it is root of a user namespace only: there it is
// an ordinary user.
bool is_root_of_the_system() {
  constexpr std::uint64_t kAll = 4294967295;
  std::uint64_t inside = 1;
  std::uint64_t outside = 1;
  std::uint64_t count = 0;
  std::ifstream map("/proc/self/uid_map");
  if (!map.is_open()) return geteuid() == 0;  // a kernel without user namespaces
  map >> inside >> outside >> count;
  return geteuid() == 0 && inside == 0 && outside == 0 && count == kAll;
}

Finding processes() {
  const rlimit limit = limit_on(RLIMIT_NPROC);
  const bool unbound = is_root_of_the_system();
  const auto of_group = most_processes(own_control_groups(), kControlGroups);
  std::string text = shown(limit.rlim_cur) + (unbound ? ", which does not bind root" : "");
  if (of_group) text += "; " + std::to_string(*of_group) + " in this control group";
  return {.good = (unbound || limit.rlim_cur >= kEnoughProcesses) &&
                  of_group.value_or(kEnoughInGroup) >= kEnoughInGroup,
          .subject = "processes",
          .text = text,
          .advice =
              "ranks and their threads count: raise it (ulimit -u, TasksMax=, docker "
              "--pids-limit)"};
}

std::string rounded(double number) {
  std::ostringstream text;
  text.precision(3);
  text << number;
  return text.str();
}

Finding cores() {
  const int usable = usable_cores();
  const auto quota = cpu_quota();
  std::string text = std::to_string(usable) + " usable (" +
                     format_number_list(usable_hardware_threads()) + "), so --nproc cpu is " +
                     std::to_string(cores_with_time());
  if (quota) text += "; time for " + rounded(*quota);
  return {.good = !quota || *quota >= usable,
          .subject = "cores",
          .text = text,
          .advice =
              "the container gets less time than it sees cores: start no more ranks than "
              "that, or raise its CPU quota"};
}

Finding core_dumps() {
  const rlimit limit = limit_on(RLIMIT_CORE);
  return {.good = true,
          .subject = "core dumps",
          .text = limit.rlim_cur == 0 ? "off (ulimit -c unlimited keeps one of a rank that crashes)"
                                      : "on",
          .advice = {}};
}

}  // namespace

std::vector<Finding> examine_resources() {
  return {open_files(), processes(), cores(), core_dumps()};
}

}  // namespace dlaunch
