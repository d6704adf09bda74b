// CachingAllocator: memory that is taken from the system in large segments and never given back
// before the allocator dies, so that a training step that repeats makes no system call and touches
// no fresh page. Within the segments: best fit, blocks are split and merged with free neighbours.
//
// May be called from any thread. Freed memory is poisoned under AddressSanitizer.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "nn/core/backend.h"

namespace dlaunch::nn::cpu {

class CachingAllocator {
 public:
  CachingAllocator() = default;
  ~CachingAllocator();  // everything must have been deallocated
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Aligned to 64 bytes, uninitialised; nullptr for 0 bytes. Throws Error if there is no memory.
  void* allocate(std::size_t bytes);
  void deallocate(void* memory, std::size_t bytes) noexcept;
  MemoryStats stats() const;
  void reset_peak();

 private:
  struct Block {
    std::size_t size;
    bool free;
    bool begins_segment;  // is never merged with the block before it
  };
  using Blocks = std::map<std::byte*, Block>;

  void add_segment(std::size_t at_least);
  void* take(Blocks::iterator block, std::size_t size);
  void erase_free(Blocks::iterator block);
  void insert_free(Blocks::iterator block);

  mutable std::mutex mutex_;
  std::vector<std::pair<void*, std::size_t>> mappings_;  // as mmap gave them
  Blocks blocks_;                                        // all, by address
  std::set<std::pair<std::size_t, std::byte*>> free_;    // by size
  MemoryStats stats_;
};

/// Memory from an allocator for the life of this object.
class ScratchMemory {
 public:
  ScratchMemory(CachingAllocator& allocator, std::size_t bytes)
      : allocator_(allocator), bytes_(bytes), memory_(allocator.allocate(bytes)) {}
  ~ScratchMemory() { allocator_.deallocate(memory_, bytes_); }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  void* get() const { return memory_; }

 private:
  CachingAllocator& allocator_;
  std::size_t bytes_;
  void* memory_;
};

}  // namespace dlaunch::nn::cpu
