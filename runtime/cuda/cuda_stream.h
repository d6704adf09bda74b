// CudaStream: a CUDA stream as a DeviceStream.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <memory>

#include "runtime/device/device.h"

namespace dlaunch {

/// What makes a stream wait for and write words of memory; the driver's, so that programs also
/// start where there is none.
using BatchMemOp = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);

class CudaEvent final : public DeviceEvent {
 public:
  /// Takes the event over.
  CudaEvent(cudaEvent_t event, int device) : event_(event), device_(device) {}
  ~CudaEvent() override;
  Result<bool> done() const override;
  cudaEvent_t get() const { return event_; }

 private:
  const cudaEvent_t event_;
  const int device_;
};

class CudaStream final : public DeviceStream {
 public:
  /// An `owned` stream is destroyed with this object.
  CudaStream(cudaStream_t stream, int device, BatchMemOp batch_mem_op, bool owned)
      : stream_(stream), device_(device), batch_mem_op_(batch_mem_op), owned_(owned) {}
  ~CudaStream() override;

  Status copy(void* to, const void* from, std::size_t bytes) override;
  Status reduce(ReduceOp op, DType dtype, void* into, std::span<const void* const> operands,
                std::size_t count, int divisor) override;
  Status flags(std::span<const FlagAction> actions) override;
  Status call(std::function<void()> function) override;
  Result<std::shared_ptr<DeviceEvent>> record() override;
  Status wait(const DeviceEvent& event) override;
  bool capturing() const override;

  cudaStream_t get() const { return stream_; }

 private:
  const cudaStream_t stream_;
  const int device_;
  const BatchMemOp batch_mem_op_;
  const bool owned_;
};

}  // namespace dlaunch
