// CachingAllocator: memory that is taken from its source in large segments and kept, so that a
// training step that repeats asks the system for nothing and touches no fresh page. Within the
// segments: best fit, blocks are split and merged with free neighbours. Segments without a used
// block are given back only if the source has no memory left, or never.
//
// It only keeps accounts: the memory itself is never touched, so it may be a GPU's. There the order
// of a stream makes reuse right: what was freed is handed out at once, and the kernels of the next
// user come after those of the last one.
//
// May be called from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "nn/core/backend.h"
#include "nn/core/memory_source.h"

namespace dlaunch::nn {

class CachingAllocator {
 public:
  explicit CachingAllocator(std::unique_ptr<MemorySource> source) : source_(std::move(source)) {}
  /// Keeps all its segments, for others may still use what was deallocated: if the source has no
  /// memory left, `make_room` is called, which must not call this allocator.
  CachingAllocator(std::unique_ptr<MemorySource> source, std::function<void()> make_room)
      : source_(std::move(source)), make_room_(std::move(make_room)) {}
  ~CachingAllocator();  // everything must have been deallocated
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Aligned as the source says, uninitialised; nullptr for 0 bytes. Throws Error if there is no
  /// memory.
  void* allocate(std::size_t bytes);
  void deallocate(void* memory, std::size_t bytes) noexcept;
  /// Whether that memory lies in one of its segments.
  bool owns(const void* memory) const;
  /// Gives segments without a used block back to the source, if it does not keep them all.
  void give_back_unused() noexcept;
  /// If it does, too: when nobody uses any more what was deallocated.
  void give_back_kept() noexcept;
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
  void make_room();
  void release_unused() noexcept;
  void* take(Blocks::iterator block, std::size_t size);
  void erase_free(Blocks::iterator block);
  void insert_free(Blocks::iterator block);

  mutable std::mutex mutex_;
  std::unique_ptr<MemorySource> source_;
  std::function<void()> make_room_;                    // empty: gives its own segments back
  std::map<std::byte*, std::size_t> segments_;         // sizes
  Blocks blocks_;                                      // all, by address
  std::set<std::pair<std::size_t, std::byte*>> free_;  // by size
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

}  // namespace dlaunch::nn
