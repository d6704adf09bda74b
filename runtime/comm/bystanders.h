// Bystanders: the threads of this process that are known to make no calls of their own.
//
// A rank whose only other thread waits in one call cannot be about to make another, and ranks that
// wait for each other in calls of different kinds are then known to be stuck. A thread that nobody
// knows may call at any time, also one that never has before: only the library's own threads are
// bystanders. A communicator and its parts share one object. Any thread may call any member.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <set>
#include <vector>

namespace dlaunch {

/// In place of a thread's number.
inline constexpr pid_t kNoThread = 0;
inline constexpr pid_t kThisThread = -1;

class Bystanders {
 public:
  void add(pid_t thread);
  void remove(pid_t thread);

  /// True if no thread of this process but `thread` could make a call. Looks into /proc; false
  /// where that cannot be read.
  bool nobody_but(pid_t thread) const;

  /// The calling thread is a bystander as long as this lives.
  class Stay {
   public:
    explicit Stay(Bystanders& all);
    ~Stay();
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    Bystanders& all_;
  };

 private:
  mutable std::mutex mutex_;
  std::set<pid_t> threads_;
};

/// All threads of this process; none if /proc cannot be read.
std::vector<pid_t> threads_of_process();

}  // namespace dlaunch
