// RecordingPools: the memory of a device whose kernels can be recorded and repeated
// (Backend::record). What is allocated while a step is recorded comes from a pool of its own, and
// when it is freed only the next recording gets it: to repeat the kernels is to use it again, and
// nobody else may have put something there meanwhile. Recordings share that pool, because they are
// repeated one after the other and leave nothing in it that is needed later. Its segments stay
// until the end, for recorded kernels name what lies in them, unless the first recording fails. It
// takes over segments that nobody uses in the ordinary pool, where steps that were done before they
// are recorded have left them, before it asks the device for more, which takes a GPU as long as
// many kernels; when memory is scarce, the ordinary pool's unused ones go.
//
// Allocates on any thread; recording is begun and ended by one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "nn/core/caching_allocator.h"

namespace dlaunch::nn {

class RecordingPools {
 public:
  /// Two sources of the same device's memory, each of which may give back what is the other's.
  RecordingPools(std::unique_ptr<MemorySource> ordinary, std::unique_ptr<MemorySource> recorded)
      : ordinary_(std::move(ordinary)), recorded_(std::move(recorded), ordinary_) {}

  /// Where memory comes from now; to be given back to the same.
  CachingAllocator& current() { return recording_ ? recorded_ : ordinary_; }
  void* allocate(std::size_t bytes) { return current().allocate(bytes); }
  void deallocate(void* memory, std::size_t bytes) noexcept {
    (recorded_.owns(memory) ? recorded_ : ordinary_).deallocate(memory, bytes);
  }

  /// A recorded step takes about as much as those before it. If the device has less, the ordinary
  /// pool gives its unused segments back first, for while a step is recorded that would wait for
  /// the device, which might break the recording off.
  void begin_recording() {
    const MemoryStats before = ordinary_.stats();
    ordinary_.make_room_for(before.peak - before.in_use);
    recording_ = true;
  }
  void end_recording() { recording_ = false; }
  bool recording() const { return recording_; }
  /// Whether kernels are being recorded, or might be repeated.
  bool in_recordings() const { return recording_ || recordings_ > 0; }
  /// There is one recording more.
  void add_recording() { ++recordings_; }
  /// There is one less. Gives nothing back, which may wait for the device: recordings also go when
  /// something has failed there.
  void remove_recording() noexcept { --recordings_; }
  /// One has failed. If there is no other, gives back what it has taken.
  void give_up_recording() noexcept {
    if (recordings_ == 0) recorded_.give_back_unused();
  }

  /// The peak counts what a recording needs as in use whenever it might be repeated.
  MemoryStats stats() const {
    const MemoryStats ordinary = ordinary_.stats();
    const MemoryStats recorded = recorded_.stats();
    return {.in_use = ordinary.in_use + recorded.in_use,
            .peak = std::max(ordinary.peak, ordinary.in_use + recorded.peak),
            .reserved = ordinary.reserved + recorded.reserved,
            .allocations = ordinary.allocations + recorded.allocations};
  }
  void reset_peak() { ordinary_.reset_peak(); }

 private:
  CachingAllocator ordinary_;
  CachingAllocator recorded_;
  std::atomic<bool> recording_{false};
  int recordings_ = 0;  // of the one thread
};

}  // namespace dlaunch::nn
