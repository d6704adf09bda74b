// PinnedPool: pinned host memory for copies to and from a device, kept for the next copy: pinning
// takes longer than most copies. Any thread may call any member.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/device/device.h"

namespace dlaunch {

class PinnedPool {
 public:
  explicit PinnedPool(Device& device) : device_(device) {}

  struct Block {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
    std::byte* data() const { return static_cast<std::byte*>(memory.get()); }
  };

  /// At least `bytes`, a power of two; not null, also for 0.
  Result<Block> take(std::size_t bytes);
  /// For the next one, once `event` has passed; nullptr: at once.
  void give(Block block, std::shared_ptr<DeviceEvent> event);

 private:
  struct Returned {
    Block block;
    std::shared_ptr<DeviceEvent> event;
  };

  Device& device_;
  std::mutex mutex_;
  std::vector<Returned> returned_;
};

}  // namespace dlaunch
