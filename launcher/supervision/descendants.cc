#include "launcher/supervision/descendants.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch {
namespace {

// The parent of a process from /proc/PID/stat: "pid (name) state ppid ...". The name may contain
// anything, so the last ')' ends it. Zombies count: their children have gone to the subreaper.
std::optional<pid_t> parent_of(const char* pid) {
  std::ifstream file(std::string("/proc/") + pid + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos || line.size() < name_end + 5) return std::nullopt;
  pid_t parent = 0;
  const char* start = line.data() + name_end + 4;
  if (std::from_chars(start, line.data() + line.size(), parent).ec != std::errc()) return {};
  return parent;
}

// Reaps what has ended; true as long as children are left.
bool reap_ended() {
  while (true) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended == 0) return true;
    if (ended < 0 && errno != EINTR) return false;
  }
}

}  // namespace

std::vector<pid_t> descendants_of(pid_t ancestor) {
  std::multimap<pid_t, pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), &closedir);
  if (!folder) return {};
  while (const dirent* entry = readdir(folder.get())) {  // NOLINT(concurrency-mt-unsafe): own DIR
    pid_t pid = 0;
    const std::string_view name(entry->d_name);
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
    if (const auto parent = parent_of(entry->d_name)) children.emplace(*parent, pid);
  }
  std::vector<pid_t> found{ancestor};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

bool kill_all_descendants(std::chrono::milliseconds limit) {
  const auto give_up = std::chrono::steady_clock::now() + limit;
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  while (reap_ended()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    for (const pid_t pid : descendants_of(getpid())) kill(pid, SIGKILL);
    // Each end is followed by another look. The time limit is for ends that were signalled before
    // this wait began.
    const timespec pause{.tv_sec = 0, .tv_nsec = 20'000'000};
    sigtimedwait(&child_ended, nullptr, &pause);
  }
  return true;
}

}  // namespace dlaunch
