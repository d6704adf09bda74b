// StagedWork: one call that goes through pinned host memory, from the copy of its input to that of
// its output. See staging.h.
//
// Made by the caller's thread; begin() is called by the device's or the caller's; Work::State's
// members by any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/work.h"
#include "runtime/device/device_core.h"
#include "runtime/device/segments.h"

namespace dlaunch {

/// What calls that go through host memory say in a step that is being recorded.
Status not_while_capturing();

class StagedWork final : public Work::State {
 public:
  /// A collective that rank `rank` takes part in. Takes the pinned memory; kIo if there is none.
  static Result<std::shared_ptr<StagedWork>> of_call(const std::shared_ptr<DeviceCore>& core,
                                                     const CollectiveCall& call, int rank);
  /// A message whose bytes are in `block`, or will be and go to `output` then.
  StagedWork(std::shared_ptr<DeviceCore> core, PinnedPool::Block block, Segments output);

  /// The call of the host communicator, on pinned memory. Stays in place.
  const CollectiveCall& host_call() const { return call_; }
  /// Queues the copies of the inputs, and loaded() behind them. Once, before others know the work.
  Status load(DeviceStream& stream);
  const DeviceEvent& loaded() const { return *loaded_; }
  /// Queues the copies of the outputs; the pinned memory is free behind them. Once.
  Status store(DeviceStream& stream);

  /// The host's part has begun.
  void begin(Work host_work);
  /// It never will, unless it has.
  void give_up(Status why);

  /// Whether the host's part has begun and ended.
  bool done() const override;
  std::chrono::steady_clock::time_point ended() const override;
  Status wait(std::chrono::nanoseconds timeout) override;

 private:
  Status wait_for_begin(const Deadline& deadline);
  Status look_at_device() const;

  const std::shared_ptr<DeviceCore> core_;
  CollectiveCall call_;
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> recv_counts_;
  RecordReduction record_;
  Segments inputs_;
  Segments outputs_;
  std::size_t input_bytes_ = 0;
  std::size_t output_bytes_ = 0;
  PinnedPool::Block input_;
  PinnedPool::Block output_;             // the input's, if the call works in place
  std::shared_ptr<DeviceEvent> loaded_;  // of a collective

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Work> host_work_;
  std::mutex storing_;
  std::optional<Status> stored_;
};

}  // namespace dlaunch
