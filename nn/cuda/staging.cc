#include "nn/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "nn/cuda/check.h"
#include "runtime/base/round_up.h"

namespace dlaunch::nn::cuda {
namespace {

constexpr std::size_t kAlignment = 64;

std::byte* pinned(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "pinned memory");
  return static_cast<std::byte*>(memory);
}

}  // namespace

Staging::Staging(Device& device) : device_(device) {
  try {
    make();
  } catch (...) {
    destroy();
    throw;
  }
}

Staging::~Staging() {
  ignore(cudaStreamSynchronize(device_.stream()));
  destroy();
}

void Staging::make() {
  download_ = pinned(kSlotBytes);
  for (Slot& slot : slots_) {
    slot.memory = pinned(kSlotBytes);
    check(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming), "pinned memory");
  }
}

void Staging::destroy() noexcept {
  for (Slot& slot : slots_) {
    if (slot.done != nullptr) ignore(cudaEventDestroy(slot.done));
    if (slot.memory != nullptr) ignore(cudaFreeHost(slot.memory));
  }
  if (download_ != nullptr) ignore(cudaFreeHost(download_));
}

void Staging::next_slot() {
  check(cudaEventRecord(slots_[current_].done, device_.stream()), "copy from the host");
  current_ = (current_ + 1) % kSlots;
  // Of an event that was never recorded there is nothing to wait for.
  check(cudaEventSynchronize(slots_[current_].done), "copy from the host");
  slots_[current_].filled = 0;
}

void Staging::to_device(void* to, const void* from, std::size_t bytes) {
  device_.refuse_while_recording("copy from the host");
  for (std::size_t done = 0; done < bytes;) {
    if (slots_[current_].filled == kSlotBytes) next_slot();
    Slot& slot = slots_[current_];
    const std::size_t count = std::min(bytes - done, kSlotBytes - slot.filled);
    std::byte* const place = slot.memory + slot.filled;
    std::memcpy(place, static_cast<const std::byte*>(from) + done, count);
    check(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, place, count, cudaMemcpyHostToDevice,
                          device_.stream()),
          "copy from the host");
    slot.filled = std::min(kSlotBytes, round_up(slot.filled + count, kAlignment));
    done += count;
  }
}

void Staging::to_host(void* to, const void* from, std::size_t bytes) {
  device_.refuse_while_recording("copy to the host");
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t count = std::min(bytes - done, kSlotBytes);
    check(cudaMemcpyAsync(download_, static_cast<const std::byte*>(from) + done, count,
                          cudaMemcpyDeviceToHost, device_.stream()),
          "copy to the host");
    device_.synchronize();
    std::memcpy(static_cast<std::byte*>(to) + done, download_, count);
    done += count;
  }
}

}  // namespace dlaunch::nn::cuda
