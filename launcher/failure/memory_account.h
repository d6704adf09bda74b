// MemoryAccount: the kernel's account of processes that it has killed for want of memory - the
// events of this process's memory cgroup, and the kernel's log where it may be read.
//
// One thread. Costs a few system calls to make.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/descriptor.h"

namespace dlaunch {

class MemoryAccount {
 public:
  /// From now on.
  MemoryAccount();

  /// What the kernel has noted about process `pid`, or, if it names none, about one of this
  /// cgroup, since the last call with a result: "the kernel killed it (...)". Empty if nothing, or
  /// if the account cannot be read.
  std::string about(pid_t pid);

 private:
  std::string log_about(pid_t pid);

  std::string events_path_;  // empty: no cgroup that tells
  std::optional<std::int64_t> kills_;
  Descriptor log_;  // what was logged since this object was made
};

/// The file that counts `oom_kill` of a process, from the content of its /proc/PID/cgroup and the
/// files in `root` (/sys/fs/cgroup): the memory.events of a unified hierarchy or the
/// memory.oom_control of an old one. Empty: none.
std::string memory_events_path(const std::string& cgroups, const std::string& root);

}  // namespace dlaunch
