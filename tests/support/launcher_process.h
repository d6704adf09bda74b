// One run of dlaunch by the multi-process test fixture: a child process whose output is kept in
// memory and which ends when this object or this process does. Used by one thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace dlaunch::testing {

/// A file without a name, in memory. Other processes of the same user open it through path().
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(MemoryFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  MemoryFile& operator=(MemoryFile&&) = delete;

  int descriptor() const { return descriptor_; }
  /// Valid while this process lives.
  std::string path() const;
  std::string content() const;

 private:
  int descriptor_;
};

class LauncherProcess {
 public:
  /// `arguments[0]` is the program's path; `environment` is all of it, as "NAME=value".
  static Result<LauncherProcess> start(const std::vector<std::string>& arguments,
                                       const std::vector<std::string>& environment);
  ~LauncherProcess();
  LauncherProcess(LauncherProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        wait_status_(other.wait_status_),
        output_(std::move(other.output_)) {}
  LauncherProcess& operator=(LauncherProcess&&) = delete;

  /// True once the process has ended; false if the deadline passed first.
  bool wait(Deadline deadline);
  /// SIGTERM, upon which dlaunch ends its ranks; SIGKILL if that takes it more than ten seconds.
  void stop();
  /// Its exit code, or 128 + the signal that ended it. After wait() or stop().
  int exit_code() const;
  /// What it and its ranks have written so far.
  std::string output() const { return output_.content(); }

 private:
  LauncherProcess(pid_t pid, MemoryFile output) : pid_(pid), output_(std::move(output)) {}

  pid_t pid_;  // -1: moved from, or ended
  int wait_status_ = 0;
  MemoryFile output_;
};

}  // namespace dlaunch::testing
