#include "nn/cpu/caching_allocator.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>

#include "nn/core/error.h"
#include "runtime/base/round_up.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, an AVX-512 register
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSegment = std::size_t{8} << 20;  // smallest request to the system

}  // namespace

CachingAllocator::~CachingAllocator() {
  for (const auto& [mapping, size] : mappings_) {
    ASAN_UNPOISON_MEMORY_REGION(mapping, size);
    munmap(mapping, size);
  }
}

void* CachingAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t size = round_up(bytes, kAlignment);
  const std::lock_guard lock(mutex_);
  auto fit = free_.lower_bound({size, nullptr});
  if (fit == free_.end()) {
    add_segment(size);
    fit = free_.lower_bound({size, nullptr});
  }
  void* memory = take(blocks_.find(fit->second), size);
  ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
  stats_.in_use += size;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  return memory;
}

void CachingAllocator::deallocate(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  const std::size_t size = round_up(bytes, kAlignment);
  const std::lock_guard lock(mutex_);
  auto block = blocks_.find(static_cast<std::byte*>(memory));
  if (block == blocks_.end() || block->second.free || block->second.size != size) std::abort();
  stats_.in_use -= size;
  ASAN_POISON_MEMORY_REGION(memory, size);
  const auto next = std::next(block);
  if (next != blocks_.end() && next->second.free && !next->second.begins_segment) {
    erase_free(next);
    block->second.size += next->second.size;
    blocks_.erase(next);
  }
  if (!block->second.begins_segment) {
    const auto before = std::prev(block);
    if (before->second.free) {
      erase_free(before);
      before->second.size += block->second.size;
      blocks_.erase(block);
      block = before;
    }
  }
  insert_free(block);
}

MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak = stats_.in_use;
}

void CachingAllocator::add_segment(std::size_t at_least) {
  const std::size_t size = std::max(round_up(at_least, kHugePage), kSegment);
  // Mapped a huge page longer, so that a part of the size wanted begins at a huge page; what is
  // left over is never touched.
  const std::size_t mapped = size + kHugePage;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    throw Error("out of memory: " + std::to_string(size >> 20) + " MiB wanted, " +
                std::to_string(stats_.in_use >> 20) + " MiB in use");
  }
  mappings_.emplace_back(mapping, mapped);
  void* aligned = mapping;
  std::size_t space = mapped;
  auto* segment = static_cast<std::byte*>(std::align(kHugePage, size, aligned, space));
  madvise(segment, size, MADV_HUGEPAGE);  // a wish: fewer page faults at the first touch
  ASAN_POISON_MEMORY_REGION(segment, size);
  insert_free(blocks_.emplace(segment, Block{size, false, true}).first);
  stats_.reserved += size;
  ++stats_.allocations;
}

void* CachingAllocator::take(Blocks::iterator block, std::size_t size) {
  erase_free(block);
  const std::size_t rest = block->second.size - size;
  if (rest > 0) {
    block->second.size = size;
    insert_free(blocks_.emplace(block->first + size, Block{rest, false, false}).first);
  }
  return block->first;
}

void CachingAllocator::erase_free(Blocks::iterator block) {
  free_.erase({block->second.size, block->first});
  block->second.free = false;
}

void CachingAllocator::insert_free(Blocks::iterator block) {
  free_.insert({block->second.size, block->first});
  block->second.free = true;
}

}  // namespace dlaunch::nn::cpu
