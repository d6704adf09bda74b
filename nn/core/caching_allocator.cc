#include "nn/core/caching_allocator.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

#include "nn/core/error.h"
#include "runtime/base/round_up.h"

namespace dlaunch::nn {

CachingAllocator::~CachingAllocator() {
  for (const auto& [segment, size] : segments_) (void)source_->give_back(segment, size);
}

void* CachingAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t size = round_up(bytes, source_->alignment());
  const std::lock_guard lock(mutex_);
  auto fit = free_.lower_bound({size, nullptr});
  if (fit == free_.end()) {
    add_segment(size);
    fit = free_.lower_bound({size, nullptr});
  }
  void* memory = take(blocks_.find(fit->second), size);
  source_->mark_used(memory, bytes);
  stats_.in_use += size;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  return memory;
}

void CachingAllocator::deallocate(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  const std::size_t size = round_up(bytes, source_->alignment());
  const std::lock_guard lock(mutex_);
  auto block = blocks_.find(static_cast<std::byte*>(memory));
  if (block == blocks_.end() || block->second.free || block->second.size != size) std::abort();
  stats_.in_use -= size;
  source_->mark_free(memory, size);
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

bool CachingAllocator::owns(const void* memory) const {
  const auto* const address = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  auto segment = segments_.upper_bound(const_cast<std::byte*>(address));
  if (segment == segments_.begin()) return false;
  --segment;
  return address < segment->first + segment->second;
}

void CachingAllocator::give_back_unused() noexcept {
  const std::lock_guard lock(mutex_);
  release_unused();
}

void CachingAllocator::make_room_for(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  if (source_->available() < bytes) release_unused();
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
  Segment segment;
  if (lender_ != nullptr) segment = lender_->lend(at_least);
  if (segment.first != nullptr) {
    source_->take_over(segment.first, segment.second);
  } else {
    segment = obtain(at_least);
  }
  source_->mark_free(segment.first, segment.second);
  add(segment);
}

void CachingAllocator::add(Segment segment) {
  segments_.insert(segment);
  insert_free(blocks_.emplace(segment.first, Block{segment.second, false, true}).first);
  stats_.reserved += segment.second;
}

CachingAllocator::Segment CachingAllocator::obtain(std::size_t at_least) {
  const std::size_t size =
      std::max(round_up(at_least, source_->granularity()), source_->smallest_segment());
  void* memory = source_->obtain(size);
  if (memory == nullptr) {
    make_room();
    memory = source_->obtain(size);
  }
  if (memory == nullptr) {
    throw Error(source_->exhausted() + ": " + std::to_string(size >> 20) + " MiB wanted, " +
                std::to_string(stats_.in_use >> 20) + " MiB in use, " +
                std::to_string(stats_.reserved >> 20) + " MiB held");
  }
  ++stats_.allocations;
  return {static_cast<std::byte*>(memory), size};
}

CachingAllocator::Segment CachingAllocator::lend(std::size_t at_least) {
  const std::lock_guard lock(mutex_);
  for (auto free = free_.lower_bound({at_least, nullptr}); free != free_.end(); ++free) {
    const auto [size, memory] = *free;
    const auto segment = segments_.find(memory);
    if (segment == segments_.end() || segment->second != size) continue;
    free_.erase(free);
    blocks_.erase(memory);
    segments_.erase(segment);
    stats_.reserved -= size;
    return {memory, size};
  }
  return {};
}

void CachingAllocator::make_room() noexcept {
  if (lender_ != nullptr) {
    lender_->give_back_unused();
  } else {
    release_unused();
  }
}

/// The segments that are one free block.
void CachingAllocator::release_unused() noexcept {
  for (auto at = segments_.begin(); at != segments_.end();) {
    const auto [segment, size] = *at;
    const auto block = blocks_.find(segment);
    const bool unused = block->second.free && block->second.size == size;
    if (!unused || !source_->give_back(segment, size)) {
      ++at;
      continue;
    }
    erase_free(block);
    blocks_.erase(block);
    stats_.reserved -= size;
    at = segments_.erase(at);
  }
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

}  // namespace dlaunch::nn
