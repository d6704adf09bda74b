// Staging: copies between the host's memory and a device through pinned memory, on the device's
// stream. Copies to the device only stop the host if so much is on its way already that no pinned
// memory is left.
//
// Used by the device's thread.
#pragma once

#include <array>
#include <cstddef>

#include "nn/cuda/device.h"

namespace dlaunch::nn::cuda {

class Staging {
 public:
  /// The device must outlive it. Throws Error.
  explicit Staging(Device& device);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Returns when `from` may be overwritten.
  void to_device(void* to, const void* from, std::size_t bytes);
  /// Returns when the values are there; so all work before is done.
  void to_host(void* to, const void* from, std::size_t bytes);

 private:
  // Filled from the front by one copy after another; used again when all of them are done.
  struct Slot {
    std::byte* memory = nullptr;
    std::size_t filled = 0;
    cudaEvent_t done = nullptr;  // recorded behind the last copy
  };
  static constexpr std::size_t kSlotBytes = std::size_t{4} << 20;
  static constexpr std::size_t kSlots = 4;

  void make();
  void destroy() noexcept;
  void next_slot();

  Device& device_;
  std::array<Slot, kSlots> slots_;
  std::size_t current_ = 0;
  std::byte* download_ = nullptr;  // kSlotBytes
};

}  // namespace dlaunch::nn::cuda
