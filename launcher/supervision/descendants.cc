#include "launcher/supervision/descendants.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch {
namespace {

struct Process {
  ProcessId id;
  pid_t parent = 0;
};

// Of /proc/PID/stat, "pid (name) state ppid ...", the field with this number (3: the state). The
// name may contain anything, also newlines, so the last ')' ends it.
template <typename Number>
std::optional<Number> number_in(const std::string& stat, int field) {
  std::size_t at = stat.rfind(')');
  for (int blanks = field - 2; blanks > 0 && at != std::string::npos; --blanks) {
    at = stat.find(' ', at + 1);
  }
  if (at == std::string::npos) return std::nullopt;
  Number number = 0;
  const auto read = std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), number);
  if (read.ec != std::errc()) return std::nullopt;
  return number;
}

// Zombies count: their children have gone to the subreaper.
std::optional<Process> read_process(pid_t pid) {
  constexpr int kParent = 4;
  constexpr int kStartTime = 22;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const auto parent = number_in<pid_t>(stat, kParent);
  const auto started = number_in<std::uint64_t>(stat, kStartTime);
  if (!parent || !started) return std::nullopt;
  return Process{{pid, *started}, *parent};
}

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
    if (const auto process = read_process(pid)) children.emplace(process->parent, process->id);
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
