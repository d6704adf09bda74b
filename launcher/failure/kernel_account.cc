#include "launcher/failure/kernel_account.h"

#include <array>
#include <fstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "launcher/failure/kernel_fault.h"
#include "runtime/base/control_group.h"

namespace dlaunch {
namespace {

// The number in the line "oom_kill N".
std::optional<std::int64_t> kills_in(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return std::nullopt;
}

}  // namespace

std::string memory_events_path(const std::string& cgroups, const std::string& root) {
  const auto group = control_group(cgroups, "memory", root);
  if (!group) return "";
  const char* file = group->unified ? "/memory.events" : "/memory.oom_control";
  const std::string path = group->mount + group->path + file;
  // A container sees its own group at the top of the hierarchy, whatever it is told of its place.
  return kills_in(path) ? path : group->mount + file;
}

KernelAccount::KernelAccount()
    : events_path_(memory_events_path(own_control_groups(), kControlGroups)),
      kills_(kills_in(events_path_)),
      log_(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (log_.is_open()) lseek(log_.get(), 0, SEEK_END);
}

KernelRecord KernelAccount::about(pid_t pid) {
  const auto before = std::exchange(kills_, kills_in(events_path_));
  KernelRecord record = logged_about(pid);
  if (record.out_of_memory.empty() && before && kills_ && *kills_ > *before) {
    record.out_of_memory =
        "the kernel killed a process of this cgroup (oom_kill in " + events_path_ + ")";
  }
  return record;
}

// A record of the log is "PRIORITY,NUMBER,TIME,FLAGS;TEXT"; each read gives one.
KernelRecord KernelAccount::logged_about(pid_t pid) {
  if (!log_.is_open()) return {};
  const std::string victim = "illed process " + std::to_string(pid) + " ";
  std::array<char, 8192> record;
  // EPIPE: some were overwritten meanwhile; the next read goes on behind them.
  for (int i = 0; i < 10'000; ++i) {
    const ssize_t count = read(log_.get(), record.data(), record.size());
    if (count < 0 && errno != EPIPE) break;
    const std::string_view text(record.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
    const auto start = text.find(';') + 1;
    const std::string_view line = text.substr(start, text.find('\n') - start);
    if (line.find(victim) != std::string_view::npos) {
      return {.out_of_memory = "the kernel's log says: " + std::string(line)};
    }
    if (std::string fault = kernel_fault(line, pid); !fault.empty()) return {.fault = fault};
  }
  return {};
}

}  // namespace dlaunch
