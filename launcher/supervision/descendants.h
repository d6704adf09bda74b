// The descendants of this process: everything that it has started, however far it has gone:
// children, their children, and those that left for sessions of their own. This process is a child
// subreaper (PR_SET_CHILD_SUBREAPER), so that whatever loses its parent becomes its child.
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/process_stat.h"

namespace dlaunch {

/// A process, told apart from a later one with the same number.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t started = 0;  // clock ticks since the machine did

  bool operator==(const ProcessId&) const = default;
};

struct Descendant {
  pid_t pid = 0;
  ProcessStat stat;

  ProcessId id() const { return {pid, stat.started}; }
};

/// One thread.
class Descendants {
 public:
  /// All but these and what they have started.
  explicit Descendants(std::vector<ProcessId> but = {});

  /// Those that are there now, zombies too; nothing if that cannot be found out.
  std::optional<std::vector<Descendant>> find();

  /// Kills (SIGKILL) and reaps them, again and again until none is left, for some may fork
  /// meanwhile. SIGCHLD must be blocked. Needs no descriptors. False if some still live
  /// (processes of another user, or ones stuck in the kernel) that have done nothing for their end
  /// for as long as `patience`, see ExitWatch.
  bool kill_all(std::chrono::milliseconds patience);

 private:
  bool kill_children();
  bool is_spared(pid_t pid) const;

  const std::vector<ProcessId> but_;
  const std::unique_ptr<DIR, int (*)(DIR*)> processes_;  // open while there are descriptors
};

/// Whether they are found at all: /proc is there, and shows this process under its own number.
bool can_find_descendants();

/// Whether `pid` is now the number of a descendant of this process.
bool is_descendant(pid_t pid);

/// The descendants that this process has already, though it has started nothing yet: a shell that
/// exec'ed this program has left it its children.
std::vector<ProcessId> inherited_descendants();

}  // namespace dlaunch
