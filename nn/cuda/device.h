// Device: what kernels run on: a GPU's compute stream, its memory, and a word in the host's memory
// by which a kernel reports what only it can see.
//
// Used by the thread that made it; its memory by any.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "nn/core/recording_pools.h"

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
  /// Where kernels take their scratch memory from now.
  CachingAllocator& memory() { return pools_.current(); }
  RecordingPools& pools() { return pools_; }
  const RecordingPools& pools() const { return pools_; }
  /// While kernels are recorded: the word by which they shift their random numbers when they are
  /// repeated, in blocks; else null.
  const std::uint64_t* random_shift() const {
    return pools_.recording() ? random_blocks_memory_ : nullptr;
  }
  std::uint64_t* random_blocks_memory() const { return random_blocks_memory_; }
  /// What is there, or on its way.
  std::uint64_t random_blocks() const { return random_blocks_; }
  void note_random_blocks(std::uint64_t blocks) { random_blocks_ = blocks; }
  /// Recordings that have failed. What their kernels were to write is not there.
  std::uint64_t failed_recordings() const { return failed_recordings_; }
  void note_failed_recording() { ++failed_recordings_; }
  /// Where kernels write a Fault, in memory that both sides see.
  int* fault() const { return fault_; }

  /// Throws Error if kernels are being recorded, since nothing is done then. `what` would wait.
  void refuse_while_recording(const char* what) const;
  /// Returns when all work is done. Throws Error for what it has found wrong.
  void synchronize();

 private:
  void make();
  void destroy() noexcept;
  bool wait_for_all_streams() const;

  int number_;
  int multiprocessors_ = 0;
  int capability_ = 0;
  cudaStream_t stream_ = nullptr;
  int* fault_ = nullptr;
  bool ending_ = false;
  RecordingPools pools_;
  std::uint64_t* random_blocks_memory_ = nullptr;
  std::uint64_t random_blocks_ = 0;
  std::uint64_t failed_recordings_ = 0;
};

}  // namespace dlaunch::nn::cuda
