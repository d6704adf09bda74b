// ActivityBoard: the memory in which the ranks of one attempt publish what they are doing
// (runtime/base/activity_layout.h), from dlaunch's side. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/activity_layout.h"
#include "runtime/base/deadline.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/dtype.h"

namespace dlaunch {

/// One thing that a rank waits in, or waited in last.
struct ShownActivity {
  ActivityKind kind = ActivityKind::kNone;
  std::string name;            // of the communicator; of a store wait, what is missing
  std::string operation;       // "all_reduce"; empty: there was none yet
  std::uint64_t sequence = 0;  // of that collective
  std::uint64_t tag = 0;       // of a message
  DType dtype = DType::kU8;
  int lane = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  int peer = -1;
  int members = 0;
  std::optional<Deadline::Clock::time_point> since;  // none: it did not wait long enough to say

  bool waits() const { return kind != ActivityKind::kNone; }
};

struct ShownRank {
  pid_t process = 0;  // that publishes; 0: the rank has not come to our runtime, or does not use it
  bool joins_world = false;                          // it connects our communicator, or has
  std::optional<Deadline::Clock::time_point> ready;  // its start-up was over
  int stack_signal = 0;                              // makes it print its stack; 0: none does
  std::uint64_t progress = 0;                        // another number whenever anything moves
  std::vector<ShownActivity> activities;
};

class ActivityBoard {
 public:
  /// For `ranks` ranks of this node. If the system has no memory for it, an empty board: then no
  /// rank is ever seen to publish anything.
  explicit ActivityBoard(int ranks);
  ~ActivityBoard();
  ActivityBoard(const ActivityBoard&) = delete;
  ActivityBoard& operator=(const ActivityBoard&) = delete;

  /// For DLAUNCH_ACTIVITY, valid while this process lives; empty if the board is.
  std::string path() const;

  int ranks() const { return ranks_; }
  ShownRank read(int local_rank) const;
  /// Tells the ranks why they are about to be ended: one of them has failed.
  void tell_of_failure();

 private:
  const int ranks_;
  Descriptor file_;
  ActivityPage* pages_ = nullptr;
};

}  // namespace dlaunch
