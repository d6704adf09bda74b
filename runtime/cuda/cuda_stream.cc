#include "runtime/cuda/cuda_stream.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/cuda/cuda_status.h"
#include "runtime/cuda/reduce_kernels.h"

namespace dlaunch {

CudaEventPool::~CudaEventPool() {
  const CurrentDevice current(device_);
  for (cudaEvent_t const event : free_) (void)cudaEventDestroy(event);
}

Result<cudaEvent_t> CudaEventPool::take() {
  {
    const std::scoped_lock lock(mutex_);
    if (!free_.empty()) {
      cudaEvent_t const event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  DLAUNCH_RETURN_IF_ERROR(cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                      "cudaEventCreateWithFlags"));
  return event;
}

void CudaEventPool::give(cudaEvent_t event) {
  const std::scoped_lock lock(mutex_);
  free_.push_back(event);
}

Result<bool> CudaEvent::done() const {
  const CurrentDevice current(pool_->device());
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  DLAUNCH_RETURN_IF_ERROR(cuda_status(state, "cudaEventQuery"));
  return true;
}

CudaStream::~CudaStream() {
  if (!owned_) return;
  const CurrentDevice current(device_);
  (void)cudaStreamDestroy(stream_);  // what is queued is still done
}

Status CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return Status();
  const CurrentDevice current(device_);
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_),
                     "cudaMemcpyAsync");
}

Status CudaStream::reduce(ReduceOp op, DType dtype, void* into,
                          std::span<const void* const> operands, std::size_t count, int divisor) {
  const CurrentDevice current(device_);
  return queue_reduction(op, dtype, into, operands, count, divisor, stream_);
}

// One call for all actions. A write has the memory barrier that is its default.
Status CudaStream::flags(std::span<const FlagAction> actions) {
  if (actions.empty()) return Status();
  std::vector<CUstreamBatchMemOpParams> operations(actions.size());
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const CUdeviceptr address = pinned_->device_address(actions[i].flag);
    if (actions[i].kind == FlagAction::Kind::kWrite) {
      auto& write = operations[i].writeValue;
      write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      write.address = address;
      write.value = actions[i].value;
      write.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    } else {
      auto& wait = operations[i].waitValue;
      wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
      wait.address = address;
      wait.value = actions[i].value;
      wait.flags = CU_STREAM_WAIT_VALUE_EQ;
    }
  }
  const CurrentDevice current(device_);
  const CUresult result =
      batch_mem_op_(stream_, static_cast<unsigned>(operations.size()), operations.data(), 0);
  return driver_status(result, "cuStreamBatchMemOp");
}

Status CudaStream::call(std::function<void()> function) {
  const CurrentDevice current(device_);
  auto owned = std::make_unique<std::function<void()>>(std::move(function));
  const auto run = [](void* data) {
    const std::unique_ptr<std::function<void()>> called(static_cast<std::function<void()>*>(data));
    (*called)();
  };
  const cudaError_t error = cudaLaunchHostFunc(stream_, run, owned.get());
  if (error == cudaSuccess) (void)owned.release();  // run() has it now
  return cuda_status(error, "cudaLaunchHostFunc");
}

Result<std::shared_ptr<DeviceEvent>> CudaStream::record() {
  const CurrentDevice current(device_);
  auto event = events_->take();
  DLAUNCH_RETURN_IF_ERROR(event.status());
  auto owned = std::make_shared<CudaEvent>(*event, events_);
  DLAUNCH_RETURN_IF_ERROR(cuda_status(cudaEventRecord(*event, stream_), "cudaEventRecord"));
  return std::shared_ptr<DeviceEvent>(std::move(owned));
}

Status CudaStream::wait(const DeviceEvent& event) {
  const CurrentDevice current(device_);
  const auto& of_cuda = static_cast<const CudaEvent&>(event);  // all events here are
  return cuda_status(cudaStreamWaitEvent(stream_, of_cuda.get(), 0), "cudaStreamWaitEvent");
}

std::uint64_t CudaStream::recording() const {
  const CurrentDevice current(device_);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
  if (cudaStreamGetCaptureInfo(stream_, &status, &number) != cudaSuccess ||
      status == cudaStreamCaptureStatusNone) {
    return 0;
  }
  constexpr std::uint64_t kBroken = ~std::uint64_t{0};  // has no number any more
  return status == cudaStreamCaptureStatusActive ? number : kBroken;
}

}  // namespace dlaunch
