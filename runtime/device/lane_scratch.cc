#include "runtime/device/lane_scratch.h"

#include <algorithm>
#include <utility>

#include "runtime/base/round_up.h"

namespace dlaunch {
namespace {

constexpr std::size_t kScratchAlignment = 256;  // as cudaMalloc

}  // namespace

Result<std::byte*> LaneScratch::take(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t size = round_up(bytes, kScratchAlignment);
  if (size > length_ - used_) {
    const std::size_t longer = std::max(size, 2 * length_);
    auto block = device_.allocate(longer);
    DLAUNCH_RETURN_IF_ERROR(block.status());
    blocks_.push_back(*std::move(block));
    length_ = longer;
    used_ = 0;
  }
  std::byte* const memory = static_cast<std::byte*>(blocks_.back().get()) + used_;
  used_ += size;
  return memory;
}

}  // namespace dlaunch
