// BlockingLane: runs operations on their caller's thread, one at a time.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include "runtime/base/status.h"
#include "runtime/comm/lane.h"
#include "transport/failure_state.h"

namespace dlaunch {

class BlockingLane {
 public:
  /// `failure` is the communicator's, shared with the other lane.
  BlockingLane(std::unique_ptr<Endpoint> endpoint, const FailureState& failure)
      : lane_(std::move(endpoint)), failure_(failure) {}

  /// Any thread; callers queue. Fails at once if the communicator has failed.
  Status run(const Request& request, std::chrono::nanoseconds timeout);

  /// To be called after `failure` was set: ends the operation in progress, if any, and tells the
  /// peers. Any thread but one inside run().
  void fail();

 private:
  Lane lane_;
  const FailureState& failure_;
  std::mutex mutex_;  // held by the thread that drives the lane
};

}  // namespace dlaunch
