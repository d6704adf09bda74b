#include "launcher/supervision/descendants.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include "launcher/supervision/exit_watch.h"

namespace dlaunch {
namespace {

bool has_children() {
  siginfo_t ended{};
  return waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
}

bool is_child(pid_t pid) {
  siginfo_t ended{};
  return waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
}

// Reaps what has ended; true as long as children are left.
bool reap_ended() {
  while (true) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended == 0) return true;
    if (ended < 0 && errno != EINTR) return false;
  }
}

// True if a child ends within a moment.
bool some_child_ends() {
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  const timespec moment{.tv_sec = 0, .tv_nsec = 20'000'000};
  return sigtimedwait(&child_ended, nullptr, &moment) == SIGCHLD;
}

// The next process of the system; 0 after the last.
pid_t next_process(DIR* processes) {
  while (const dirent* entry = readdir(processes)) {  // NOLINT(concurrency-mt-unsafe): one thread
    pid_t pid = 0;
    const std::string_view name(entry->d_name);
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec == std::errc()) return pid;
  }
  return 0;
}

}  // namespace

Descendants::Descendants(std::vector<ProcessId> but)
    : but_(std::move(but)), processes_(opendir("/proc"), &closedir) {}

// By the parent links in /proc.
std::optional<std::vector<Descendant>> Descendants::find() {
  // Hardly ever there are any, and a look through /proc takes its time.
  if (!has_children()) return std::vector<Descendant>();
  if (!processes_) return std::nullopt;
  std::multimap<pid_t, Descendant> children;
  rewinddir(processes_.get());
  while (const pid_t pid = next_process(processes_.get())) {
    // Zombies count: their children have gone to the subreaper.
    const auto stat = read_process_stat(pid);
    if (stat) children.emplace(stat->parent, Descendant{pid, *stat});
    if (!stat && is_child(pid)) return std::nullopt;  // so it has not gone
  }
  std::vector<Descendant> found{{.pid = getpid(), .stat = {}}};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i].pid);
    for (auto child = begin; child != end; ++child) {
      if (std::ranges::find(but_, child->second.id()) == but_.end()) found.push_back(child->second);
    }
  }
  found.erase(found.begin());
  return found;
}

bool Descendants::kill_all(std::chrono::milliseconds patience) {
  ExitWatch exits(patience, ExitWatch::Clock::now());
  while (reap_ended()) {
    const auto now = ExitWatch::Clock::now();
    if (exits.expired(now)) return false;
    // With their ends, the children of these become ours.
    const bool killed = kill_children();
    if (killed && some_child_ends()) continue;
    // Those of one that does not end do not.
    const auto left = find();
    if (left && left->empty() && !but_.empty()) return true;  // only they keep us from having none
    for (const Descendant& process : left.value_or(std::vector<Descendant>())) {
      kill(process.pid, SIGKILL);
      exits.see(process.pid, process.stat, now);
    }
    if (!killed) some_child_ends();
  }
  return true;
}

// False if there are none. By a system call for each process of the system: to look into files
// takes ten times as long, in which one that forks and exits again and again would have moved on.
bool Descendants::kill_children() {
  bool any = false;
  if (!processes_) return any;
  rewinddir(processes_.get());
  while (const pid_t pid = next_process(processes_.get())) {
    if (!is_child(pid) || is_spared(pid)) continue;
    kill(pid, SIGKILL);
    any = true;
  }
  return any;
}

bool Descendants::is_spared(pid_t pid) const {
  const auto found = std::ranges::find(but_, pid, &ProcessId::pid);
  if (found == but_.end()) return false;
  const auto stat = read_process_stat(pid);
  return !stat || stat->started == found->started;
}

bool can_find_descendants() {
  std::array<char, 16> number{};
  const ssize_t length = readlink("/proc/self", number.data(), number.size());
  return length > 0 && std::string_view(number.data(), static_cast<std::size_t>(length)) ==
                           std::to_string(getpid());
}

bool is_descendant(pid_t pid) {
  while (pid > 1) {
    const auto stat = read_process_stat(pid);
    if (!stat) return false;
    if (stat->parent == getpid()) return true;
    pid = stat->parent;
  }
  return false;
}

std::vector<ProcessId> inherited_descendants() {
  std::vector<ProcessId> ids;
  for (const Descendant& process : Descendants().find().value_or(std::vector<Descendant>())) {
    ids.push_back(process.id());
  }
  return ids;
}

}  // namespace dlaunch
