// DeviceCore: what a communicator over device memory shares with its Works, which may outlive it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/device/pinned_pool.h"
#include "transport/failure_state.h"

namespace dlaunch {

struct DeviceCore {
  DeviceCore(std::shared_ptr<Device> of, std::chrono::nanoseconds patience)
      : device(std::move(of)), timeout(patience), pool(*device) {}

  const std::shared_ptr<Device> device;
  FailureState failure;
  std::atomic<std::chrono::nanoseconds> timeout;
  PinnedPool pool;

  Status failed_earlier() const {
    return failure.status().within("the communicator failed earlier");
  }
  /// Waits on the host, until the communicator fails or its timeout has passed.
  Status wait_for(const DeviceEvent& event) const;
};

}  // namespace dlaunch
