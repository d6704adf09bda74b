// CudaDevice: a GPU as a Device.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "runtime/cuda/cuda_stream.h"
#include "runtime/device/device.h"

namespace dlaunch {

class CudaDevice final : public Device {
 public:
  /// `number` is among the visible devices; `compute` is a stream of it that outlives this object
  /// and all memory that it gives.
  static Result<std::shared_ptr<CudaDevice>> make(int number, cudaStream_t compute);

  std::string name() const override { return properties_.name; }
  DeviceUuid uuid() const override;
  bool reaches(const DeviceUuid& other) const override;
  bool shares_memory() const override;
  Status records_calls(const void* opened) override;
  MemoryPlace place_of(const void* memory) const override;
  DeviceStream& compute() override { return compute_; }
  Result<std::unique_ptr<DeviceStream>> make_stream(bool high_priority) override;
  Result<std::shared_ptr<void>> allocate(std::size_t bytes) override;
  Result<std::shared_ptr<void>> allocate_pinned(std::size_t bytes) override;
  Result<std::shared_ptr<void>> pin(std::span<std::byte> memory) override;
  Result<MemoryHandle> share(void* memory) override;
  Result<std::shared_ptr<void>> open(const MemoryHandle& handle) override;
  void enter_thread() override;
  bool has_native_path() const override { return true; }
  Result<std::unique_ptr<DevicePath>> connect_native(Communicator& host,
                                                     std::chrono::nanoseconds timeout) override;

 private:
  CudaDevice(int number, const cudaDeviceProp& properties, cudaStream_t compute,
             BatchMemOp batch_mem_op)
      : number_(number),
        properties_(properties),
        batch_mem_op_(batch_mem_op),
        events_(std::make_shared<CudaEventPool>(number)),
        compute_(compute, events_, batch_mem_op, pinned_, false) {}

  /// `memory` of this device's, which `free` frees.
  std::shared_ptr<void> owned(void* memory, cudaError_t (*free)(void*)) const;

  const int number_;
  const cudaDeviceProp properties_;
  const BatchMemOp batch_mem_op_;  // nullptr: the driver has none
  const std::shared_ptr<CudaEventPool> events_;
  const std::shared_ptr<PinnedRanges> pinned_ = std::make_shared<PinnedRanges>();
  CudaStream compute_;
};

}  // namespace dlaunch
