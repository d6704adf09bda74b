#include "runtime/device/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace dlaunch {

Result<PinnedPool::Block> PinnedPool::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, std::size_t{4096}));
  {
    const std::scoped_lock lock(mutex_);
    const auto usable = [&](const Returned& returned) {
      if (returned.block.bytes != size) return false;
      if (returned.event == nullptr) return true;
      const Result<bool> done = returned.event->done();
      return done.ok() && *done;
    };
    const auto found = std::ranges::find_if(returned_, usable);
    if (found != returned_.end()) {
      Block block = std::move(found->block);
      returned_.erase(found);
      return block;
    }
  }
  auto memory = device_.allocate_pinned(size);
  if (!memory.ok()) return memory.status();
  return Block{*std::move(memory), size};
}

void PinnedPool::give(Block block, std::shared_ptr<DeviceEvent> event) {
  const std::scoped_lock lock(mutex_);
  returned_.push_back({std::move(block), std::move(event)});
}

}  // namespace dlaunch
