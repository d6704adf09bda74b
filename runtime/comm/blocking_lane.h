// BlockingLane: runs operations on their caller's thread, one at a time.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include "runtime/base/status.h"
#include "runtime/comm/caller_threads.h"
#include "runtime/comm/lane.h"
#include "transport/failure_state.h"

namespace dlaunch {

class BlockingLane {
 public:
  /// The rest is the communicator's, shared with the other lanes.
  BlockingLane(std::unique_ptr<Endpoint> endpoint, Announcements& announcements,
               const CallerThreads& callers, const FailureState& failure,
               std::shared_ptr<const Tuning> tuning, ActivityReporter reporter)
      : lane_(LaneKind::kBlocking, std::move(endpoint), announcements, std::move(tuning),
              std::move(reporter)),
        callers_(callers),
        failure_(failure) {}

  /// Any thread; callers queue. Fails at once if the communicator has failed. `Call` is a
  /// CollectiveCall or a MessageCall.
  template <typename Call>
  Status run(const Call& call, std::chrono::nanoseconds timeout) {
    const std::scoped_lock lock(mutex_);
    if (failure_.failed()) return failure_.status().within("the communicator failed earlier");
    return finish(lane_.prepare(call, timeout));
  }

  /// To be called after `failure` was set: ends the operation in progress, if any, and tells the
  /// peers. Any thread but one inside run().
  void fail();

 private:
  Status finish(std::unique_ptr<Operation> operation);

  Lane lane_;
  const CallerThreads& callers_;
  const FailureState& failure_;
  std::mutex mutex_;  // held by the thread that drives the lane
};

}  // namespace dlaunch
