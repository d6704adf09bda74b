// KernelAccount: the kernel's account of how processes ended - those that it has killed for want of
// memory, by the events of this process's memory cgroup and by the kernel's log; and, by that log,
// those that a fault has ended. The log is read where it may be.
//
// One thread. Costs a few system calls to make.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/descriptor.h"

namespace dlaunch {

struct KernelRecord {
  std::string out_of_memory;  // "the kernel's log says: ..."; empty: nothing is known of it
  std::string fault;          // as kernel_fault() words it
};

class KernelAccount {
 public:
  /// From now on.
  KernelAccount();

  /// What the kernel has noted about process `pid`, or, if it names none, about one of this
  /// cgroup, since the last call with a result; of faults those in the process's first thread: the
  /// log does not say whose the others are. Empty if nothing, or if the account cannot be read.
  KernelRecord about(pid_t pid);

 private:
  KernelRecord logged_about(pid_t pid);

  std::string events_path_;  // empty: no cgroup that tells
  std::optional<std::int64_t> kills_;
  Descriptor log_;  // what was logged since this object was made
};

/// The file that counts `oom_kill` of a process, from the content of its /proc/PID/cgroup and the
/// files in `root` (/sys/fs/cgroup): the memory.events of a unified hierarchy or the
/// memory.oom_control of an old one. Empty: none.
std::string memory_events_path(const std::string& cgroups, const std::string& root);

}  // namespace dlaunch
