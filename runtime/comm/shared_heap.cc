#include "runtime/comm/shared_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "runtime/base/round_up.h"

namespace dlaunch {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  return round_up(bytes, kPage);
}

}  // namespace

std::shared_ptr<SharedHeap> SharedHeap::over(std::span<std::byte> memory) {
  return std::shared_ptr<SharedHeap>(new SharedHeap(memory));
}

SharedHeap::SharedHeap(std::span<std::byte> memory) : memory_(memory) {
  const std::size_t bytes = memory.size() / kPage * kPage;
  if (bytes > 0) gaps_.emplace(0, bytes);
}

Result<SharedMemory> SharedHeap::allocate(std::size_t bytes) {
  if (bytes == 0) return SharedMemory();
  const std::scoped_lock lock(mutex_);
  const auto gap =
      std::ranges::find_if(gaps_, [&](const auto& candidate) { return candidate.second >= bytes; });
  if (gap == gaps_.end()) {
    std::size_t most = 0;
    for (const auto& [offset, length] : gaps_) most = std::max(most, length);
    return Status(StatusCode::kIo, "no room for " + std::to_string(bytes) +
                                       " bytes in the shared segment, where at most " +
                                       std::to_string(most) + " bytes are free in one piece");
  }
  const auto [offset, length] = *gap;
  const std::size_t taken = whole_pages(bytes);
  gaps_.erase(gap);
  if (length > taken) gaps_.emplace(offset + taken, length - taken);
  std::byte* const begin = memory_.data() + offset;
  return SharedMemory({begin, bytes},
                      std::shared_ptr<void>(begin, [heap = shared_from_this(), at = offset,
                                                    taken](void*) { heap->release(at, taken); }));
}

void SharedHeap::release(std::size_t offset, std::size_t bytes) {
  if (!process_.is_here()) return;  // a forked child's copy: the memory is its parent's
  const std::scoped_lock lock(mutex_);
  if (closed_) return;
  // Refused for memory that is not a file's, which then just stays.
  (void)::madvise(memory_.data() + offset, bytes, MADV_REMOVE);
  const auto next = gaps_.lower_bound(offset);
  if (next != gaps_.end() && next->first == offset + bytes) bytes += next->second;
  if (next != gaps_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
    }
  }
  if (next != gaps_.end() && next->first < offset + bytes) gaps_.erase(next);
  gaps_[offset] = bytes;
}

void SharedHeap::close() {
  const std::scoped_lock lock(mutex_);
  closed_ = true;
}

Result<SharedMemory> allocate_plain(std::size_t bytes) {
  if (bytes == 0) return SharedMemory();
  // The library rounds up to whole pages, and would round what is next to the largest number to 0.
  void* const memory = bytes > std::numeric_limits<std::ptrdiff_t>::max() - kPage
                           ? nullptr
                           : ::operator new(bytes, std::align_val_t(kPage), std::nothrow);
  if (memory == nullptr) {
    return Status(StatusCode::kIo, "no memory for " + std::to_string(bytes) + " bytes");
  }
  return SharedMemory({static_cast<std::byte*>(memory), bytes},
                      std::shared_ptr<void>(
                          memory, [](void* p) { ::operator delete(p, std::align_val_t(kPage)); }));
}

}  // namespace dlaunch
