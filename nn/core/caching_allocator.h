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
  /// Keeps all its segments, for others may still use what was deallocated. Takes over segments
  /// that `lender`, of the same memory, does not use, before it asks for more; if there is none,
  /// the lender gives back all that it does not use. It must outlive this one.
  CachingAllocator(std::unique_ptr<MemorySource> source, CachingAllocator& lender)
      : source_(std::move(source)), lender_(&lender) {}
  ~CachingAllocator();  // everything must have been deallocated
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Aligned as the source says, uninitialised; nullptr for 0 bytes. Throws Error if there is no
  /// memory.
  void* allocate(std::size_t bytes);
  void deallocate(void* memory, std::size_t bytes) noexcept;
  /// Whether that memory lies in one of its segments.
  bool owns(const void* memory) const;
  /// Gives segments without a used block back to the source, also if it keeps them all: when nobody
  /// uses any more what was deallocated.
  void give_back_unused() noexcept;
  /// The same, if the source has less than so much.
  void make_room_for(std::size_t bytes) noexcept;
  MemoryStats stats() const;
  void reset_peak();

 private:
  struct Block {
    std::size_t size;
    bool free;
    bool begins_segment;  // is never merged with the block before it
  };
  using Blocks = std::map<std::byte*, Block>;

  using Segment = std::pair<std::byte*, std::size_t>;

  void add_segment(std::size_t at_least);
  void add(Segment segment);
  Segment obtain(std::size_t at_least);
  /// To another allocator of the same memory: a segment that nobody uses; null if none is as large.
  Segment lend(std::size_t at_least);
  void make_room() noexcept;
  void release_unused() noexcept;
  void* take(Blocks::iterator block, std::size_t size);
  void erase_free(Blocks::iterator block);
  void insert_free(Blocks::iterator block);

  mutable std::mutex mutex_;
  std::unique_ptr<MemorySource> source_;
  CachingAllocator* lender_ = nullptr;                 // null: its own segments may go back
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
