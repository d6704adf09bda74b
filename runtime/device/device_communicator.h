// A Communicator for host memory and for the memory of a GPU: calls on host buffers go to the host
// communicator that it is made from, calls on device buffers take their place on the device's
// streams. Programs keep one world for both.
//
// On device memory
//  - a blocking call is queued on the compute stream, behind what computes its input and before
//    what uses its output, and returns; the host does not wait. Buffers must stay in place until
//    the stream has done it.
//  - a started one runs on a stream of its own lane, behind what the compute stream has been given
//    until then. Work::wait() makes the compute stream wait for it, not the host; Work::done()
//    tells whether the device has done it.
//  - what goes wrong later fails the communicator: the next call, of either memory, returns it. The
//    device's results since then mean nothing.
//  - a call's time runs from when the device begins it; a rank that is missing is named if it is
//    known. Calls that differ between ranks are not always found out: see docs/gpu-collectives.md.
//  - messages (send, recv), reductions of records and a few others go through host memory
//    (staging.h), for which the host waits for the compute stream.
//
// In one call all buffers are in the same memory. barrier() is the host's.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/deadline.h"
#include "runtime/base/logging.h"
#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/memory_path.h"
#include "runtime/device/path_choice.h"

namespace dlaunch {

struct DeviceCommunicatorOptions {
  DevicePathKind path = DevicePathKind::kAuto;
  std::chrono::nanoseconds timeout = kDefaultTimeout;  // of calls on device memory
  std::optional<MemoryPathOptions> memory;             // of the path kIpc; empty: as suits it
  Logger logger = make_null_logger();                  // is told which path it is, and why
};

/// Such a communicator also tells which way the ranks took.
class DeviceWorld : public Communicator {
 public:
  virtual DevicePathKind path() const = 0;
  /// Why, as the log says it.
  virtual const std::string& reason() const = 0;
  /// What keeps calls from becoming part of a recording (a CUDA graph); empty: nothing. The same on
  /// all ranks.
  virtual const std::string& why_not_recorded() const = 0;
  /// Repeats a recording that has calls of this communicator: `launch` queues it on the compute
  /// stream. From there on it has the time of one call; what goes wrong fails the communicator.
  /// All ranks repeat the same recordings in the same order. Throws what `launch` throws.
  virtual Status repeat(const std::function<void()>& launch) = 0;
  /// What was recorded until now is not repeated any more.
  virtual void forget_recordings() = 0;
};

/// A collective of the ranks of `host`, with the same options. kInvalidArgument if the path that
/// was asked for cannot be taken.
Result<std::unique_ptr<DeviceWorld>> make_device_communicator(
    std::unique_ptr<Communicator> host, std::shared_ptr<Device> device,
    const DeviceCommunicatorOptions& options);

}  // namespace dlaunch
