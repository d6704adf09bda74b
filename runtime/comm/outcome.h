// Outcome: how an asynchronous operation ended, handed from the progress thread to whoever waits.
// Any thread may call any member; set() is called once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "runtime/comm/work.h"

namespace dlaunch {

class Outcome final : public Work::State {
 public:
  void set(Status status) {
    {
      const std::scoped_lock lock(mutex_);
      status_ = std::move(status);
      done_ = true;
    }
    changed_.notify_all();
  }

  bool done() const override {
    const std::scoped_lock lock(mutex_);
    return done_;
  }

  Status wait(std::chrono::nanoseconds timeout) override {
    std::unique_lock lock(mutex_);
    const auto is_done = [this] { return done_; };
    if (timeout == std::chrono::nanoseconds::max()) {  // as a point in time it would overflow
      changed_.wait(lock, is_done);
    } else if (!changed_.wait_for(lock, timeout, is_done)) {
      return Status(StatusCode::kTimeout, "the operation is still in progress");
    }
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  Status status_;
};

}  // namespace dlaunch
