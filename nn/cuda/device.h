// Device: what kernels run on: a GPU's compute stream, its memory, and a word in the host's memory
// by which a kernel reports what only it can see.
//
// Used by the thread that made it; its memory by any.
#pragma once

#include <cuda_runtime_api.h>

#include "nn/core/caching_allocator.h"

namespace dlaunch::nn::cuda {

/// What a kernel can find wrong with what it is given.
enum Fault : int { kNoFault = 0, kSingleRow = 1, kLabelOutOfRange = 2 };

class Device {
 public:
  /// Throws Error.
  explicit Device(int number);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int number() const { return number_; }
  int multiprocessors() const { return multiprocessors_; }
  /// Compute capability times ten: 90 is Hopper.
  int capability() const { return capability_; }
  cudaStream_t stream() const { return stream_; }
  CachingAllocator& memory() { return memory_; }
  const CachingAllocator& memory() const { return memory_; }
  /// Where kernels write a Fault, in memory that both sides see.
  int* fault() const { return fault_; }

  /// Returns when all work is done. Throws Error for what it has found wrong.
  void synchronize();

 private:
  int number_;
  int multiprocessors_ = 0;
  int capability_ = 0;
  cudaStream_t stream_ = nullptr;
  int* fault_ = nullptr;
  CachingAllocator memory_;
};

}  // namespace dlaunch::nn::cuda
