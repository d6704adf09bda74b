// DevicePath: one way in which ranks bring the memory of their devices together. NCCL is one
// (runtime/cuda/nccl_path.h), memory that processes of a host share another (memory_path.h). What
// neither can do goes through the host (staging.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/collective/types.h"
#include "runtime/comm/collective_call.h"
#include "runtime/device/device.h"

namespace dlaunch {

/// The kinds of calls, each with resources of its own, so that they do not wait for each other.
enum class DeviceLane : std::uint8_t { kBlocking = 0, kAsync = 1, kHigh = 2 };
inline constexpr std::size_t kDeviceLanes = 3;
inline constexpr DeviceLane kAllDeviceLanes[] = {DeviceLane::kBlocking, DeviceLane::kAsync,
                                                 DeviceLane::kHigh};

class DevicePath {
 public:
  DevicePath() = default;
  /// When nobody needs this rank's memory any more, or at a deadline.
  virtual ~DevicePath() = default;
  DevicePath(const DevicePath&) = delete;
  DevicePath& operator=(const DevicePath&) = delete;

  /// Whether it can do this call, which is valid and not a barrier. The same answer on all ranks.
  virtual bool serves(const CollectiveCall& call) const = 0;
  /// Queues the call. All ranks make the calls of a lane in the same order; one thread at a time.
  virtual Status enqueue(const CollectiveCall& call, DeviceLane lane, DeviceStream& stream) = 0;

  /// Memory of another rank's device that this one's streams read, at least kProbedBytes; null if
  /// there is none.
  virtual const void* others_memory() const { return nullptr; }

  // Of the watching threads (device_watch.h):

  /// A failure that the path has noticed by itself.
  virtual Status check() = 0;
  /// The communicator has failed: lets the streams run on, whatever comes of it. Called again and
  /// again until they have, beside the others of these members. Calls of the device may be stuck
  /// until it has done so.
  virtual void release() = 0;
  /// A rank that the operation at the head of the lane waits for, as far as is known.
  virtual std::optional<int> awaited(DeviceLane lane) const = 0;
  /// A rank that has left in good order and now waits for the others to let go of its memory.
  virtual std::optional<int> leaver() const { return std::nullopt; }
  /// Lets go of the others' memory, because of such a rank: while nothing is queued, nor being
  /// queued, nor recorded to be repeated. From then on calls return `why`.
  virtual void let_go(const Status& /*why*/) {}
};

}  // namespace dlaunch
