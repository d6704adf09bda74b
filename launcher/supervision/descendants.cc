#include "launcher/supervision/descendants.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/process_stat.h"

namespace dlaunch {
namespace {

// All living descendants of this process, by the parent links in /proc, without those that descend
// from one of `but`.
std::vector<ProcessId> descendants(std::span<const ProcessId> but) {
  std::multimap<pid_t, ProcessId> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), &closedir);
  if (!folder) return {};
  while (const dirent* entry = readdir(folder.get())) {  // NOLINT(concurrency-mt-unsafe): own DIR
    pid_t pid = 0;
    const std::string_view name(entry->d_name);
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
    // Zombies count: their children have gone to the subreaper.
    const auto stat = read_process_stat(pid);
    if (stat) children.emplace(stat->parent, ProcessId{pid, stat->started});
  }
  std::vector<ProcessId> found{{getpid()}};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i].pid);
    for (auto child = begin; child != end; ++child) {
      if (std::ranges::find(but, child->second) == but.end()) found.push_back(child->second);
    }
  }
  found.erase(found.begin());
  return found;
}

bool has_children() {
  siginfo_t ended{};
  return waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
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

std::vector<ProcessId> inherited_descendants() {
  // Hardly ever there are any, and a look through /proc takes its time.
  return has_children() ? descendants({}) : std::vector<ProcessId>();
}

bool kill_all_descendants(std::chrono::milliseconds limit, std::span<const ProcessId> inherited) {
  const auto give_up = std::chrono::steady_clock::now() + limit;
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  while (reap_ended()) {
    const std::vector<ProcessId> left = descendants(inherited);
    if (left.empty() && !inherited.empty()) return true;  // only they keep us from having none
    if (std::chrono::steady_clock::now() > give_up) return false;
    for (const ProcessId& process : left) kill(process.pid, SIGKILL);
    // Each end is followed by another look. The time limit is for ends that were signalled before
    // this wait began.
    const timespec pause{.tv_sec = 0, .tv_nsec = 20'000'000};
    sigtimedwait(&child_ended, nullptr, &pause);
  }
  return true;
}

}  // namespace dlaunch
