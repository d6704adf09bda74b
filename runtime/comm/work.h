// Work: an asynchronous operation in flight, as start_all_reduce() and its like return it.
//
// A handle: copies refer to the same operation, which goes on whether or not anyone holds one. Any
// thread may wait; several may. One that was moved from can only be assigned to or destroyed.
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "runtime/base/status.h"

namespace dlaunch {

class [[nodiscard]] Work {
 public:
  /// For implementers: where the outcome will appear. Methods may be called from any thread.
  class State {
   public:
    virtual ~State() = default;
    virtual bool done() const = 0;
    virtual std::chrono::steady_clock::time_point ended() const = 0;
    virtual Status wait(std::chrono::nanoseconds timeout) = 0;
  };

  /// Work that has ended well, to be assigned to.
  Work() : Work(finished(Status())) {}
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Work that has ended already.
  static Work finished(Status status);

  bool done() const { return state_->done(); }
  /// When it ended, once it is done.
  std::chrono::steady_clock::time_point ended() const { return state_->ended(); }
  /// Returns how the operation ended. kTimeout if it has not within `timeout`; it then still goes
  /// on.
  Status wait(std::chrono::nanoseconds timeout) { return state_->wait(timeout); }
  /// Waits as long as the communicator's own timeout lets the operation take
  /// (Communicator::set_timeout).
  Status wait() { return wait(std::chrono::nanoseconds::max()); }

 private:
  std::shared_ptr<State> state_;
};

/// Waits for all of them, each as Work::wait() does. Returns how the first of them, in their order
/// here, ended that did not end well.
Status wait_all(std::span<Work> works);

}  // namespace dlaunch
