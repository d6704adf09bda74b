// make_cuda_communicator() over the device of this process: collectives go through host memory. The
// device is as quick as can be.
#include "runtime/cuda/cuda_communicator.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "runtime/cuda/cuda_status.h"
#include "runtime/cuda/reduce_kernels.h"
#include "tests/cuda_on_host/host_pages.h"
#include "tests/cuda_on_host/queue.h"

namespace dlaunch {
namespace {

using cuda_on_host::device_pages;
using cuda_on_host::queue;

Status not_here(const char* what) {
  return Status(StatusCode::kUnavailable, std::string(what) + ": not with kernels on the host");
}

/// Is done when it is recorded: the communicator's watch asks on a thread of its own, and only one
/// may use the queue.
class HostEvent final : public DeviceEvent {
 public:
  Result<bool> done() const override { return true; }
};

class HostStream final : public DeviceStream {
 public:
  explicit HostStream(cudaStream_t stream) : stream_(stream) {}

  Status copy(void* to, const void* from, std::size_t bytes) override {
    return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_),
                       "cudaMemcpyAsync");
  }
  Status reduce(ReduceOp op, DType dtype, void* into, std::span<const void* const> operands,
                std::size_t count, int divisor) override {
    return queue_reduction(op, dtype, into, operands, count, divisor, stream_);
  }
  Status flags(std::span<const FlagAction> /*actions*/) override { return not_here("flags"); }
  Status call(std::function<void()> function) override {
    DLAUNCH_RETURN_IF_ERROR(cuda_status(queue().drain(), "drain"));
    function();
    return Status();
  }
  Result<std::shared_ptr<DeviceEvent>> record() override {
    if (!capturing()) DLAUNCH_RETURN_IF_ERROR(cuda_status(queue().drain(), "drain"));
    return std::shared_ptr<DeviceEvent>(std::make_shared<HostEvent>());
  }
  Status wait(const DeviceEvent& /*event*/) override { return Status(); }  // all is in order
  std::uint64_t recording() const override { return queue().capturing() ? 1 : 0; }
  void* native() const override { return stream_; }

 private:
  const cudaStream_t stream_;
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(cudaStream_t compute) : compute_(compute) {}

  std::string name() const override { return "kernels on the host"; }
  DeviceUuid uuid() const override { return {}; }
  bool reaches(const DeviceUuid& other) const override { return other == uuid(); }
  bool shares_memory() const override { return false; }
  Status records_calls(const void* /*opened*/) override {
    return Status(StatusCode::kUnavailable, "nothing is recorded here");
  }
  MemoryPlace place_of(const void* memory) const override {
    return device_pages().contains(memory) ? MemoryPlace::kThisDevice : MemoryPlace::kHost;
  }
  DeviceStream& compute() override { return compute_; }
  Result<std::unique_ptr<DeviceStream>> make_stream(bool /*high_priority*/) override {
    return std::unique_ptr<DeviceStream>(std::make_unique<HostStream>(nullptr));
  }
  Result<std::shared_ptr<void>> allocate(std::size_t bytes) override {
    void* memory = nullptr;
    DLAUNCH_RETURN_IF_ERROR(cuda_status(cudaMalloc(&memory, bytes), "cudaMalloc"));
    return std::shared_ptr<void>(memory, [](void* freed) { (void)cudaFree(freed); });
  }
  Result<std::shared_ptr<void>> allocate_pinned(std::size_t bytes) override {
    void* memory = nullptr;
    DLAUNCH_RETURN_IF_ERROR(
        cuda_status(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc"));
    return std::shared_ptr<void>(memory, [](void* freed) { (void)cudaFreeHost(freed); });
  }
  Result<std::shared_ptr<void>> pin(std::span<std::byte> /*memory*/) override {
    return not_here("pinning");
  }
  Result<MemoryHandle> share(void* /*memory*/) override { return not_here("sharing memory"); }
  Result<std::shared_ptr<void>> open(const MemoryHandle& /*handle*/) override {
    return not_here("sharing memory");
  }
  void enter_thread() override {}
  bool has_native_path() const override { return false; }
  Result<std::unique_ptr<DevicePath>> connect_native(
      Communicator& /*host*/, std::chrono::nanoseconds /*timeout*/) override {
    return not_here("NCCL");
  }

 private:
  HostStream compute_;
};

}  // namespace

Result<std::unique_ptr<DeviceWorld>> make_cuda_communicator(
    std::unique_ptr<Communicator> host, int /*device*/, CUstream_st* compute,
    const DeviceCommunicatorOptions& options) {
  return make_device_communicator(std::move(host), std::make_shared<HostDevice>(compute), options);
}

}  // namespace dlaunch
