// BlockingLane: runs collectives on their caller's thread, one at a time.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include "runtime/base/status.h"
#include "runtime/comm/bystanders.h"
#include "runtime/comm/lane.h"
#include "transport/failure_state.h"

namespace dlaunch {

class BlockingLane {
 public:
  /// The rest is the communicator's, shared with the other lanes.
  BlockingLane(std::unique_ptr<Endpoint> endpoint, Announcements& announcements,
               const Bystanders& bystanders, const FailureState& failure,
               std::shared_ptr<const Tuning> tuning, ActivityReporter reporter)
      : lane_(LaneKind::kBlocking, std::move(endpoint), announcements, bystanders,
              std::move(tuning), std::move(reporter)),
        failure_(failure) {}

  /// Any thread; callers queue. Fails at once if the communicator has failed.
  Status run(const CollectiveCall& call, std::chrono::nanoseconds timeout);

  /// To be called after `failure` was set: ends the operation in progress, if any, and tells the
  /// peers. Any thread but one inside run().
  void fail();

 private:
  Lane lane_;
  const FailureState& failure_;
  std::mutex mutex_;  // held by the thread that drives the lane
};

}  // namespace dlaunch
