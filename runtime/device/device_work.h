// DeviceWork: an operation on a stream of a communicator's own.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "runtime/comm/work.h"
#include "runtime/device/device_core.h"
#include "runtime/device/device_watch.h"

namespace dlaunch {

class DeviceWork final : public Work::State {
 public:
  DeviceWork(std::shared_ptr<DeviceCore> core, std::shared_ptr<DeviceEvent> event,
             std::shared_ptr<EndTime> end_time, bool recorded)
      : core_(std::move(core)),
        event_(std::move(event)),
        end_time_(std::move(end_time)),
        recorded_(recorded) {}

  bool done() const override {
    if (core_->failure.failed() || end_time_->ended()) return true;
    if (recorded_) return false;  // nothing is done yet, and such an event must not be asked
    const Result<bool> done = event_->done();
    if (done.ok() && *done) end_time_->set();
    return !done.ok() || *done;
  }
  /// When it was seen to have ended, which is at most some 20 ms late.
  std::chrono::steady_clock::time_point ended() const override { return end_time_->when(); }

  /// Makes the compute stream wait. The host does not, so the timeout plays no part.
  Status wait(std::chrono::nanoseconds /*timeout*/) override {
    if (core_->failure.failed()) return core_->failure.status();
    return core_->device->compute().wait(*event_);
  }

 private:
  const std::shared_ptr<DeviceCore> core_;
  const std::shared_ptr<DeviceEvent> event_;
  const std::shared_ptr<EndTime> end_time_;
  const bool recorded_;  // into a graph
};

}  // namespace dlaunch
