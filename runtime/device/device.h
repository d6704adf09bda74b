// Device: the seam between collectives on a GPU's memory and the GPU. What is here is implemented
// over CUDA (runtime/cuda) and, for tests of everything above it, by threads and host memory.
//
// A DeviceStream is a queue of work that the device does in order, on its own time: members return
// when the work is queued. Errors of queueing are returned; errors of doing appear in later calls
// and in DeviceEvent::done(). Any thread may call any member of these classes; calls on one stream
// are queued in the order in which they are made.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/collective/types.h"

namespace dlaunch {

class Communicator;
class DevicePath;

/// What tells two GPUs apart, on any host.
using DeviceUuid = std::array<std::uint8_t, 16>;

/// "GPU-8a2b...", as nvidia-smi prints it.
std::string to_string(const DeviceUuid& uuid);

/// Memory of one process, to be opened by another one of the same host.
struct MemoryHandle {
  std::array<std::byte, 64> bytes{};
};

/// Where memory is, as a communicator sees it.
enum class MemoryPlace : std::uint8_t { kHost, kThisDevice, kOtherDevice };

/// Something that a stream does with a word of host memory that was pinned.
struct FlagAction {
  enum class Kind : std::uint8_t { kWaitUntilEqual, kWrite };
  Kind kind = Kind::kWrite;
  std::uint32_t* flag = nullptr;
  std::uint32_t value = 0;
};

/// A place in a stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Whether all work queued before it is done; an error if the device has failed.
  virtual Result<bool> done() const = 0;
};

class DeviceStream {
 public:
  DeviceStream() = default;
  virtual ~DeviceStream() = default;
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  /// Between device memory, of this process or opened, and pinned host memory.
  virtual Status copy(void* to, const void* from, std::size_t bytes) = 0;
  /// As reduce_operands() (collective/reduction.h), to the bit but for a NaN's, on device memory.
  /// At most kMostOperands operands.
  virtual Status reduce(ReduceOp op, DType dtype, void* into, std::span<const void* const> operands,
                        std::size_t count, int divisor) = 0;
  /// Does the actions in their order. A write is seen by whoever sees it together with everything
  /// that the stream wrote before. Waiting occupies nothing that other streams need, unless there
  /// are so many that they share a queue of the device.
  virtual Status flags(std::span<const FlagAction> actions) = 0;
  /// Calls `function` on a thread of the device's. It must not call the device.
  virtual Status call(std::function<void()> function) = 0;
  virtual Result<std::shared_ptr<DeviceEvent>> record() = 0;
  /// What is queued from now on begins after `event`.
  virtual Status wait(const DeviceEvent& event) = 0;
  /// Of the recording that calls only become a part of, to be done later and many times (a CUDA
  /// graph), a number that no other one of this process has; 0: they are done.
  virtual std::uint64_t recording() const = 0;
  bool capturing() const { return recording() != 0; }
  /// What the device's library of collectives takes for it: a cudaStream_t.
  virtual void* native() const = 0;
};

/// Of another rank's memory, to try out what can be done with it.
inline constexpr std::size_t kProbedBytes = 256;
/// Ranks whose memory one reduction can read.
inline constexpr std::size_t kMostOperands = 64;

class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual std::string name() const = 0;  // "NVIDIA H200"
  virtual DeviceUuid uuid() const = 0;
  /// Whether memory of that device can be opened and read by this one's streams, if its owner is a
  /// process of this host. True for the device itself.
  virtual bool reaches(const DeviceUuid& other) const = 0;
  /// Whether streams can wait for flags and memory can be shared between processes.
  virtual bool shares_memory() const = 0;
  /// Whether streams record flags() like other work, and copies and reductions of what open() has
  /// given, of which `opened` are kProbedBytes; if not, why. May try it, which takes a moment.
  virtual Status records_calls(const void* opened) = 0;
  virtual MemoryPlace place_of(const void* memory) const = 0;

  /// The stream of the computation, on which collectives take their place.
  virtual DeviceStream& compute() = 0;
  virtual Result<std::unique_ptr<DeviceStream>> make_stream(bool high_priority) = 0;

  /// Freed with the last copy of the pointer, which may wait for the device.
  virtual Result<std::shared_ptr<void>> allocate(std::size_t bytes) = 0;
  virtual Result<std::shared_ptr<void>> allocate_pinned(std::size_t bytes) = 0;
  /// Pins host memory until the last copy of the pointer is gone.
  virtual Result<std::shared_ptr<void>> pin(std::span<std::byte> memory) = 0;
  /// `memory` is what allocate() gave.
  virtual Result<MemoryHandle> share(void* memory) = 0;
  virtual Result<std::shared_ptr<void>> open(const MemoryHandle& handle) = 0;

  /// To be called on a thread of the communicator's own before it calls anything else: its calls
  /// must not disturb what another thread is capturing.
  virtual void enter_thread() = 0;

  /// The device's own library of collectives (NCCL), if this build has one.
  virtual bool has_native_path() const = 0;
  /// Connects all ranks of `host` by that library, each with a device of its own. A collective.
  virtual Result<std::unique_ptr<DevicePath>> connect_native(Communicator& host,
                                                             std::chrono::nanoseconds timeout) = 0;
};

}  // namespace dlaunch
