// Outcome: how an asynchronous operation ended, handed from the progress thread to whoever waits.
// Any thread may call any member; set() is called once.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/base/deadline.h"
#include "runtime/comm/bystanders.h"
#include "runtime/comm/work.h"

namespace dlaunch {

class Outcome final : public Work::State {
 public:
  void set(Status status) {
    {
      const std::scoped_lock lock(mutex_);
      status_ = std::move(status);
      ended_ = std::chrono::steady_clock::now();
      done_ = true;
    }
    changed_.notify_all();
  }

  bool done() const override {
    const std::scoped_lock lock(mutex_);
    return done_;
  }

  std::chrono::steady_clock::time_point ended() const override {
    const std::scoped_lock lock(mutex_);
    return ended_;
  }

  Status wait(std::chrono::nanoseconds timeout) override {
    std::unique_lock lock(mutex_);
    const auto is_done = [this] { return done_; };
    if (timeout > kUnlimited) {  // as a point in time it could overflow
      if (!done_) begin_waiting();
      changed_.wait(lock, is_done);
    } else if (!changed_.wait_for(lock, timeout, is_done)) {
      return Status(StatusCode::kTimeout, "the operation is still in progress");
    }
    return status_;
  }

  /// A thread that waits without a timeout of its own: until the operation has ended. kNoThread
  /// if there is none.
  pid_t waiter() const { return waiter_; }
  /// The end of so much time from when the first such thread began to wait; nothing if none has.
  std::optional<Deadline> limit(std::chrono::nanoseconds timeout) const {
    const Deadline::Clock::time_point since = awaited_since_;
    if (since == kNever) return std::nullopt;
    return Deadline::at(since + timeout);
  }

 private:
  void begin_waiting() {
    waiter_ = ::gettid();
    if (awaited_since_.load() == kNever) awaited_since_ = Deadline::Clock::now();
  }

  static constexpr std::chrono::hours kUnlimited{366 * 24};
  static constexpr Deadline::Clock::time_point kNever{};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::chrono::steady_clock::time_point ended_;
  Status status_;
  std::atomic<pid_t> waiter_{kNoThread};
  std::atomic<Deadline::Clock::time_point> awaited_since_{kNever};
};

}  // namespace dlaunch
