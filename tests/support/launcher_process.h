// One run of dlaunch by the multi-process test fixture: a child process whose output is kept in
// memory and which ends when this object or this process does. Used by one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
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
  std::size_t size() const;
  /// All of it, or its last `most` bytes.
  std::string content(std::size_t most = SIZE_MAX) const;
  /// Gives back the memory of all but the last `most` bytes, whose places then read as zeros.
  void forget_all_but(std::size_t most) const;

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
        unknown_(other.unknown_),
        output_(std::move(other.output_)) {}
  LauncherProcess& operator=(LauncherProcess&&) = delete;

  /// True once the process has ended; false if the deadline passed first.
  bool wait(Deadline deadline);
  /// Has dlaunch tell where its ranks are (SIGQUIT), in output(). Takes 12 s at most.
  void ask_where_ranks_are();
  /// SIGTERM, upon which dlaunch ends its ranks; SIGKILL if that takes it more than ten seconds.
  void stop();
  /// Its exit code, or 128 + the signal that ended it; nothing if that went to someone else:
  /// SIGCHLD is ignored here, or its handler waits for all children. After wait() or stop().
  std::optional<int> exit_code() const;
  /// What it and its ranks have written so far, or the last 4 MiB of it.
  std::string output() const { return output_.content(kOutputKept); }

 private:
  static constexpr std::size_t kOutputKept = 4 << 20;

  LauncherProcess(pid_t pid, MemoryFile output) : pid_(pid), output_(std::move(output)) {}

  pid_t pid_;  // -1: moved from, or ended
  int wait_status_ = 0;
  bool unknown_ = false;  // wait_status_
  MemoryFile output_;
};

}  // namespace dlaunch::testing
