// Outcome: how an asynchronous operation ended, handed from the progress thread to whoever waits.
// Any thread may call any member; set() is called once.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

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
  /// Since when the first such thread has waited. The epoch: nobody has.
  std::chrono::steady_clock::time_point awaited_since() const { return awaited_since_; }

 private:
  void begin_waiting() {
    waiter_ = ::gettid();
    if (awaited_since().time_since_epoch().count() == 0)
      awaited_since_ = std::chrono::steady_clock::now();
  }

  static constexpr std::chrono::hours kUnlimited{366 * 24};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::chrono::steady_clock::time_point ended_;
  Status status_;
  std::atomic<pid_t> waiter_{kNoThread};
  std::atomic<std::chrono::steady_clock::time_point> awaited_since_{};
};

}  // namespace dlaunch
