#include "launcher/failure/memory_account.h"

#include <array>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace dlaunch {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

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

// Lines are "HIERARCHY:CONTROLLERS:PATH"; the unified hierarchy is number 0 and lists none.
std::string memory_events_path(const std::string& cgroups, const std::string& root) {
  std::istringstream lines(cgroups);
  std::string unified;
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers == "memory") {
      return path.insert(0, root + "/memory").append("/memory.oom_control");
    }
    if (controllers.empty()) unified = path.insert(0, root).append("/memory.events");
  }
  return unified;
}

MemoryAccount::MemoryAccount()
    : events_path_(memory_events_path(content_of("/proc/self/cgroup"), "/sys/fs/cgroup")),
      kills_(kills_in(events_path_)),
      log_(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (log_.is_open()) lseek(log_.get(), 0, SEEK_END);
}

std::string MemoryAccount::about(pid_t pid) {
  const auto before = std::exchange(kills_, kills_in(events_path_));
  if (std::string text = log_about(pid); !text.empty()) return text;
  if (!before || !kills_ || *kills_ <= *before) return "";
  return "the kernel killed a process of this cgroup (oom_kill in " + events_path_ + ")";
}

// A record is "PRIORITY,NUMBER,TIME,FLAGS;TEXT"; each read gives one.
std::string MemoryAccount::log_about(pid_t pid) {
  if (!log_.is_open()) return "";
  const std::string victim = "illed process " + std::to_string(pid) + " ";
  std::array<char, 8192> record;
  // EPIPE: some were overwritten meanwhile; the next read goes on behind them.
  for (int i = 0; i < 10'000; ++i) {
    const ssize_t count = read(log_.get(), record.data(), record.size());
    if (count < 0 && errno != EPIPE) break;
    const std::string_view text(record.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
    if (text.find(victim) == std::string_view::npos) continue;
    const auto start = text.find(';') + 1;
    return "the kernel's log says: " + std::string(text.substr(start, text.find('\n') - start));
  }
  return "";
}

}  // namespace dlaunch
