// SharedFlags: the words through which ranks of a host tell each other how far their streams are
// (memory_plan.h), in memory that all of them have mapped and pinned. Streams and the watching
// thread use it at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/base/descriptor.h"
#include "runtime/base/round_up.h"
#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/device_path.h"
#include "runtime/device/memory_plan.h"
#include "transport/shm/mapping.h"

namespace dlaunch {

/// Where the words lie: for each lane, slot and phase a table of flags, one for each pair of ranks;
/// and for each lane and rank what its stream waits for. Words that different ranks set lie in
/// different cache lines.
struct FlagLayout {
  int world = 1;

  static constexpr std::size_t kTables = kDeviceLanes * kMemorySlots * kMemoryPhases;
  static std::size_t table(DeviceLane lane, std::size_t slot, MemoryPhase phase) {
    return (static_cast<std::size_t>(lane) * kMemorySlots + slot) * kMemoryPhases +
           static_cast<std::size_t>(phase);
  }
  std::size_t row() const { return round_up(static_cast<std::size_t>(world), 16); }
  /// Set by `from`, cleared by `to`.
  std::size_t flag(std::size_t table, int from, int to) const {
    return (table * static_cast<std::size_t>(world) + static_cast<std::size_t>(from)) * row() +
           static_cast<std::size_t>(to);
  }
  /// 0: waits for nobody; else 1 + the table of the flags that it waits for.
  std::size_t stage(DeviceLane lane, int rank) const {
    return kTables * static_cast<std::size_t>(world) * row() +
           (static_cast<std::size_t>(rank) * kDeviceLanes + static_cast<std::size_t>(lane)) * 16;
  }
  /// A Closed: whether `rank` has closed the memory of the others.
  std::size_t closed(int rank) const {
    return stage(DeviceLane::kBlocking, world) + static_cast<std::size_t>(rank) * 16;
  }
  std::size_t words() const { return closed(world); }
};

/// Of a rank, once it has closed the memory of the others: because it leaves, or as one of them has
/// left, or after a failure.
enum class Closed : std::uint32_t { kNot = 0, kToLeave, kAfterALeaver, kAfterFailure };

class SharedFlags {
 public:
  /// Memory that rank 0 makes and the others map. A collective of `host`, whose ranks are on one
  /// host; all ranks succeed or none. kUnavailable if the streams of one do not wait for it.
  static Result<std::unique_ptr<SharedFlags>> connect(Communicator& host, Device& device);

  ~SharedFlags() = default;
  SharedFlags(const SharedFlags&) = delete;
  SharedFlags& operator=(const SharedFlags&) = delete;

  const FlagLayout& layout() const { return layout_; }
  std::uint32_t* word(std::size_t index) const {
    return reinterpret_cast<std::uint32_t*>(memory_.data()) + index;
  }
  std::uint32_t load(std::size_t index) const {
    return std::atomic_ref<std::uint32_t>(*word(index)).load(std::memory_order_acquire);
  }
  void store(std::size_t index, std::uint32_t value) const {
    std::atomic_ref<std::uint32_t>(*word(index)).store(value, std::memory_order_release);
  }

 private:
  explicit SharedFlags(FlagLayout layout) : layout_(layout) {}
  Status set_up(const Descriptor& file, std::size_t bytes, int rank, Device& device);
  Status try_out(int rank, Device& device);

  const FlagLayout layout_;
  Mapping memory_;
  std::shared_ptr<void> pinned_;  // unpinned before the memory goes
  bool still_used_ = false;       // by a stream that was tried
};

}  // namespace dlaunch
