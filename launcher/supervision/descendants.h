// Ending everything that this process has started, however far it has gone: children, their
// children, and those that left for sessions of their own. The caller is a child subreaper
// (PR_SET_CHILD_SUBREAPER), so that whatever loses its parent becomes its child.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace dlaunch {

/// All living descendants of `ancestor`, by the parent links in /proc.
std::vector<pid_t> descendants_of(pid_t ancestor);

/// Kills (SIGKILL) and reaps all descendants of this process, again and again until none is left,
/// for some may fork meanwhile. SIGCHLD must be blocked. False if some still live after `limit`
/// (processes of another user, or ones stuck in the kernel).
bool kill_all_descendants(std::chrono::milliseconds limit);

}  // namespace dlaunch
