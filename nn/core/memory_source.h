// MemorySource: where a CachingAllocator gets its segments from: the system, a GPU, a fake in
// tests.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace dlaunch::nn {

/// Called by one thread at a time.
class MemorySource {
 public:
  MemorySource() = default;
  virtual ~MemorySource() = default;
  MemorySource(const MemorySource&) = delete;
  MemorySource& operator=(const MemorySource&) = delete;

  /// Every block begins and ends at a multiple of this, a power of two.
  virtual std::size_t alignment() const = 0;
  /// Segments are multiples of this; at least `smallest_segment()` bytes.
  virtual std::size_t granularity() const = 0;
  virtual std::size_t smallest_segment() const = 0;

  /// A segment, aligned; nullptr if there is no memory.
  virtual void* obtain(std::size_t bytes) = 0;
  /// A segment of another source of the same memory, which from now on is this one's.
  virtual void take_over(void* /*segment*/, std::size_t /*bytes*/) {}
  /// Nobody uses it any more, but kernels that were started may still be at work in it. False if it
  /// cannot be given back now.
  virtual bool give_back(void* segment, std::size_t bytes) noexcept = 0;
  /// Bytes that can be obtained now; that many and more where this is not known.
  virtual std::size_t available() const { return std::numeric_limits<std::size_t>::max(); }

  /// "out of memory", and what is known about it.
  virtual std::string exhausted() const = 0;

  /// The first `bytes` at `memory` are handed out, or are free again.
  virtual void mark_used(void* /*memory*/, std::size_t /*bytes*/) {}
  virtual void mark_free(void* /*memory*/, std::size_t /*bytes*/) noexcept {}
};

}  // namespace dlaunch::nn
