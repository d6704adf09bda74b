// Ending everything that this process has started, however far it has gone: children, their
// children, and those that left for sessions of their own. The caller is a child subreaper
// (PR_SET_CHILD_SUBREAPER), so that whatever loses its parent becomes its child.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace dlaunch {

/// A process, told apart from a later one with the same number.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t started = 0;  // clock ticks since the machine did

  bool operator==(const ProcessId&) const = default;
};

/// The descendants that this process has already, though it has started nothing yet: a shell that
/// exec'ed this program has left it its children.
std::vector<ProcessId> inherited_descendants();

/// Kills (SIGKILL) and reaps all descendants of this process except the `inherited` ones and what
/// they have started, again and again until none is left, for some may fork meanwhile. SIGCHLD must
/// be blocked. False if some still live after `limit` (processes of another user, or ones stuck in
/// the kernel).
bool kill_all_descendants(std::chrono::milliseconds limit,
                          std::span<const ProcessId> inherited = {});

}  // namespace dlaunch
