// FailureState: the first failure of an endpoint, readable from any thread.
#pragma once

#include <atomic>
#include <mutex>

#include "runtime/base/status.h"

namespace dlaunch {

class FailureState {
 public:
  /// True once set() has been called. Any thread.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  /// The failure, or ok. Any thread.
  Status status() const {
    if (!failed()) return Status();  // asked again and again, so without the lock
    const std::scoped_lock lock(mutex_);
    return status_;
  }
  /// Keeps the first failure; false if there was one before. Any thread.
  bool set(const Status& why) {
    const std::scoped_lock lock(mutex_);
    if (!status_.ok()) return false;
    status_ = why;
    failed_.store(true, std::memory_order_release);
    return true;
  }

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  Status status_;
};

}  // namespace dlaunch
