#include "nn/cuda/device_memory.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "nn/cuda/check.h"

namespace dlaunch::nn::cuda {
namespace {

constexpr std::size_t kMiBOfDevice = std::size_t{1} << 20;

/// Getting and returning memory takes a GPU a good part of a step, however much it is, and a pool
/// in few segments finds more room in them. So large devices give more at a time.
std::size_t segment_for(std::size_t total) {
  return (total >= (std::size_t{40} << 30) ? 256 : 32) * kMiBOfDevice;
}

class DeviceMemory final : public MemorySource {
 public:
  DeviceMemory(int device, std::function<bool()> before_giving_back)
      : device_(device), before_giving_back_(std::move(before_giving_back)) {
    check(cudaSetDevice(device_), "device memory");
    MemoryInfo info;
    check(cudaMemGetInfo(&info.free, &info.total), "device memory");
    smallest_segment_ = segment_for(info.total);
  }

  std::size_t alignment() const override { return 256; }  // as cudaMalloc
  std::size_t granularity() const override { return 2 * kMiBOfDevice; }
  std::size_t smallest_segment() const override { return smallest_segment_; }

  void* obtain(std::size_t bytes) override {
    check(cudaSetDevice(device_), "device memory");  // any thread may allocate
    void* segment = nullptr;
    const cudaError_t status = cudaMalloc(&segment, bytes);
    if (status == cudaErrorMemoryAllocation) {
      ignore(cudaGetLastError());  // it is dealt with
      return nullptr;
    }
    check(status, "device memory");
    return segment;
  }

  // Waits for the device, so kernels still at work are done.
  bool give_back(void* segment, std::size_t /*bytes*/) noexcept override {
    ignore(cudaSetDevice(device_));
    if (!before_giving_back_()) return false;
    if (cudaFree(segment) == cudaSuccess) return true;
    ignore(cudaGetLastError());
    return false;
  }

  std::size_t available() const override { return memory_info().free; }

  std::string exhausted() const override {
    const auto [free, total] = memory_info();
    return "out of device memory (device " + std::to_string(device_) + ": " +
           std::to_string(free >> 20) + " of " + std::to_string(total >> 20) +
           " MiB free; take smaller batches and more train.accumulation_steps)";
  }

 private:
  struct MemoryInfo {
    std::size_t free = 0;
    std::size_t total = 0;
  };
  MemoryInfo memory_info() const {
    MemoryInfo info;
    ignore(cudaSetDevice(device_));
    ignore(cudaMemGetInfo(&info.free, &info.total));
    return info;
  }

  int device_;
  std::size_t smallest_segment_ = 0;
  std::function<bool()> before_giving_back_;
};

}  // namespace

std::unique_ptr<MemorySource> make_device_memory(int device,
                                                 std::function<bool()> before_giving_back) {
  return std::make_unique<DeviceMemory>(device, std::move(before_giving_back));
}

}  // namespace dlaunch::nn::cuda
