// CudaStream: a CUDA stream as a DeviceStream.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/cuda/pinned_ranges.h"
#include "runtime/device/device.h"

namespace dlaunch {

/// What makes a stream wait for and write words of memory; the driver's, so that programs also
/// start where there is none.
using BatchMemOp = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);

/// Events without timing of one device, to be used again and again. Any thread.
class CudaEventPool {
 public:
  explicit CudaEventPool(int device) : device_(device) {}
  ~CudaEventPool();
  CudaEventPool(const CudaEventPool&) = delete;
  CudaEventPool& operator=(const CudaEventPool&) = delete;

  /// With the device as the current one.
  Result<cudaEvent_t> take();
  void give(cudaEvent_t event);
  int device() const { return device_; }

 private:
  const int device_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

class CudaEvent final : public DeviceEvent {
 public:
  /// An event from the pool, which gets it back.
  CudaEvent(cudaEvent_t event, std::shared_ptr<CudaEventPool> pool)
      : event_(event), pool_(std::move(pool)) {}
  ~CudaEvent() override { pool_->give(event_); }
  Result<bool> done() const override;
  cudaEvent_t get() const { return event_; }

 private:
  const cudaEvent_t event_;
  const std::shared_ptr<CudaEventPool> pool_;
};

class CudaStream final : public DeviceStream {
 public:
  /// An `owned` stream is destroyed with this object.
  CudaStream(cudaStream_t stream, std::shared_ptr<CudaEventPool> events, BatchMemOp batch_mem_op,
             std::shared_ptr<const PinnedRanges> pinned, bool owned)
      : stream_(stream),
        device_(events->device()),
        events_(std::move(events)),
        batch_mem_op_(batch_mem_op),
        pinned_(std::move(pinned)),
        owned_(owned) {}
  ~CudaStream() override;

  Status copy(void* to, const void* from, std::size_t bytes) override;
  Status reduce(ReduceOp op, DType dtype, void* into, std::span<const void* const> operands,
                std::size_t count, int divisor) override;
  Status flags(std::span<const FlagAction> actions) override;
  Status call(std::function<void()> function) override;
  Result<std::shared_ptr<DeviceEvent>> record() override;
  Status wait(const DeviceEvent& event) override;
  std::uint64_t recording() const override;
  void* native() const override { return stream_; }

 private:
  const cudaStream_t stream_;
  const int device_;
  const std::shared_ptr<CudaEventPool> events_;
  const BatchMemOp batch_mem_op_;
  const std::shared_ptr<const PinnedRanges> pinned_;  // where flags lie
  const bool owned_;
};

}  // namespace dlaunch
