// Activity: a rank's end of what dlaunch shows in a hang report and in `dlaunch status`. The memory
// is dlaunch's (activity_layout.h); without dlaunch nothing is published, and nothing costs
// anything.
//
// Publishing is a handful of plain stores. The clock is not looked at: whoever waits long enough to
// look at it tells the time then.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/activity_layout.h"
#include "runtime/base/deadline.h"
#include "runtime/base/dtype.h"

namespace dlaunch {

class Activity;

/// One thing that this rank can wait in. Movable; used by one thread at a time. Made empty, it
/// publishes nothing.
class ActivityReporter {
 public:
  /// What begins: a collective, of whose name at most 16 characters count, or a message.
  struct Call {
    ActivityKind kind = ActivityKind::kCollective;
    std::string_view operation;
    std::uint64_t sequence = 0;
    std::uint64_t tag = 0;
    DType dtype = DType::kU8;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    int peer = -1;  // of a message
  };

  ActivityReporter() = default;
  ~ActivityReporter() { release(); }
  ActivityReporter(ActivityReporter&& other) noexcept
      : activity_(std::move(other.activity_)), slot_(std::exchange(other.slot_, nullptr)) {}
  ActivityReporter& operator=(ActivityReporter&& other) noexcept {
    std::swap(activity_, other.activity_);
    std::swap(slot_, other.slot_);
    return *this;
  }

  bool published() const { return slot_ != nullptr; }
  void begin(const Call& call);
  /// It has waited since `since` for what the store has not; at most 48 characters of it count.
  void begin_store_wait(std::string_view missing, Deadline::Clock::time_point since);
  /// It has waited since `since`, and something moved last at `moved`.
  void waits(Deadline::Clock::time_point since, Deadline::Clock::time_point moved);
  /// Makes this the last collective, whether or not it was ever shown; a message that is shown
  /// stays, a collective must not be shown.
  void set_last(std::string_view operation, std::uint64_t sequence);
  void end() {
    if (slot_ != nullptr) slot_->kind.store(ActivityKind::kNone, std::memory_order_release);
  }

 private:
  friend class Activity;
  ActivityReporter(std::shared_ptr<Activity> activity, ActivitySlot* slot)
      : activity_(std::move(activity)), slot_(slot) {}
  void release();

  std::shared_ptr<Activity> activity_;  // keeps the memory
  ActivitySlot* slot_ = nullptr;
};

/// This process's page. Any thread.
class Activity : public std::enable_shared_from_this<Activity> {
 public:
  /// Opens the page of local rank `local_rank` in the file that dlaunch names in DLAUNCH_ACTIVITY.
  /// nullptr if there is none (`path` is empty), or if it cannot be used: a rank does without.
  static std::shared_ptr<Activity> open(const std::string& path, int local_rank);
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  /// This rank is about to connect the world, without which the job is not ready.
  void set_joins_world();
  /// Its start-up is over: the world is connected, and what the program adds to that is done.
  void set_ready();
  /// Whether dlaunch is ending this rank because another one has failed. Also for signal handlers.
  bool job_has_failed() const { return page_.job_failed.load(std::memory_order_acquire) != 0; }

  /// A free slot; if there is none, an empty reporter. `name`: of the communicator, at most 48
  /// characters of it count. `members`: of the communicator.
  ActivityReporter reporter(std::string_view name, int lane, int members);

 private:
  Activity(void* memory, std::size_t bytes, ActivityPage& page)
      : memory_(memory), bytes_(bytes), page_(page) {}

  void* memory_;
  std::size_t bytes_;
  ActivityPage& page_;
};

}  // namespace dlaunch
