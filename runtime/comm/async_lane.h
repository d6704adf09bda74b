// AsyncLane: runs operations in the background, all that were started at the same time.
//
// A progress thread drives them. It is made when the first operation is started, and polls its
// endpoint also while there is nothing to do (asleep), so that a peer's failure is heard at once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/caller_threads.h"
#include "runtime/comm/lane.h"
#include "runtime/comm/work.h"
#include "transport/failure_state.h"

namespace dlaunch {

class AsyncLane final : private Readiness {
 public:
  /// `on_failure` is called on the progress thread with the first failure it meets.
  /// The other references are to the communicator's, shared with the other lanes.
  AsyncLane(LaneKind kind, std::unique_ptr<Endpoint> endpoint, Announcements& announcements,
            const CallerThreads& callers, const FailureState& failure,
            std::shared_ptr<const Tuning> tuning, ActivityReporter reporter,
            std::function<void(const Status&)> on_failure)
      : lane_(kind, std::move(endpoint), announcements, std::move(tuning), std::move(reporter)),
        callers_(callers),
        failure_(failure),
        on_failure_(std::move(on_failure)) {}
  /// What is still in flight ends with kAborted; never blocks on a peer.
  ~AsyncLane();
  AsyncLane(const AsyncLane&) = delete;
  AsyncLane& operator=(const AsyncLane&) = delete;

  /// Ends the progress thread; `on_failure` is not called any more. Before the destruction of
  /// anything that `on_failure` refers to.
  void stop();

  /// Any thread. `Call` is a CollectiveCall or a MessageCall.
  template <typename Call>
  Work start(const Call& call, std::chrono::nanoseconds timeout) {
    return submit([&] { return lane_.prepare(call, timeout); });
  }

  /// To be called after `failure` was set: ends what is in flight and tells the peers. Any thread.
  void fail();

 private:
  Work submit(const std::function<std::unique_ptr<Operation>()>& prepare);
  bool ready() const override;
  void make_progress();
  bool take_submitted();
  void rest();
  void drive_all();
  Deadline next_check() const;

  Lane lane_;
  const CallerThreads& callers_;
  const FailureState& failure_;
  const std::function<void(const Status&)> on_failure_;

  std::mutex mutex_;  // guards what follows, and Lane::prepare and recycle
  std::condition_variable stop_requested_;
  std::vector<std::unique_ptr<Operation>> submitted_;
  bool stopping_ = false;
  std::thread thread_;

  std::vector<std::unique_ptr<Operation>> in_flight_;  // the progress thread's
};

}  // namespace dlaunch
