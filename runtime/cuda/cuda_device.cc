#include "runtime/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "runtime/base/deadline.h"
#include "runtime/base/round_up.h"
#include "runtime/cuda/cuda_status.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/nccl_path.h"
#include "runtime/cuda/pointer_place.h"
#include "runtime/cuda/reduce_kernels.h"
#include "runtime/device/abandon.h"

namespace dlaunch {
namespace {

// What cudaMalloc takes from the device at a time. Smaller allocations may share such a piece, and
// a handle is one of the whole piece.
constexpr std::size_t kDeviceGranule = std::size_t{2} << 20;

DeviceUuid uuid_of(const cudaDeviceProp& properties) {
  DeviceUuid uuid{};
  static_assert(sizeof uuid == sizeof properties.uuid);
  std::memcpy(uuid.data(), &properties.uuid, sizeof uuid);
  return uuid;
}

/// What a collective queues: waits until *flag is 1, copies from memory that was opened into
/// `scratch`, adds up both there, and writes 2.
Status queue_a_call(DeviceStream& stream, std::uint32_t* flag, void* scratch, const void* opened) {
  using Kind = FlagAction::Kind;
  const FlagAction wait{Kind::kWaitUntilEqual, flag, 1};
  const FlagAction write{Kind::kWrite, flag, 2};
  const std::array<const void*, 2> operands{scratch, opened};
  DLAUNCH_RETURN_IF_ERROR(stream.flags({&wait, 1}));
  DLAUNCH_RETURN_IF_ERROR(stream.copy(scratch, opened, kProbedBytes));
  DLAUNCH_RETURN_IF_ERROR(stream.reduce(ReduceOp::kSum, DType::kF32, scratch, operands,
                                        kProbedBytes / sizeof(float), 1));
  return stream.flags({&write, 1});
}

constexpr int kMoreRecordings = 20;
constexpr std::chrono::milliseconds kBetweenRecordings{100};

/// What `queue` queues on `stream`, ready to be launched.
Result<cudaGraphExec_t> recorded(DeviceStream& stream, const std::function<Status()>& queue) {
  auto* const native = static_cast<cudaStream_t>(stream.native());
  DLAUNCH_RETURN_IF_ERROR(cuda_status(cudaStreamBeginCapture(native, cudaStreamCaptureModeRelaxed),
                                      "cudaStreamBeginCapture"));
  Status status = queue();
  cudaGraph_t graph = nullptr;  // stays so if the capture has failed
  const Status ended = cuda_status(cudaStreamEndCapture(native, &graph), "cudaStreamEndCapture");
  if (status.ok()) status = ended;
  std::size_t nodes = 0;
  cudaGraphExec_t executable = nullptr;
  if (status.ok()) {
    status = cuda_status(cudaGraphGetNodes(graph, nullptr, &nodes), "cudaGraphGetNodes");
  }
  if (status.ok() && nodes == 0) status = Status(StatusCode::kUnavailable, "the graph is empty");
  if (status.ok()) {
    status = cuda_status(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  }
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  if (!status.ok()) return status;
  return executable;
}

/// Until the stream has done what is queued.
Status wait_for(cudaStream_t stream) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(2));
  cudaError_t state = cudaStreamQuery(stream);
  while (state == cudaErrorNotReady && !deadline.expired()) {
    std::this_thread::yield();
    state = cudaStreamQuery(stream);
  }
  (void)cudaGetLastError();  // "not ready"
  return cuda_status(state, "cudaStreamQuery");
}

/// Launches a call, which must wait for the host's word and end with it.
Status try_call(cudaGraphExec_t graph, cudaStream_t stream, std::uint32_t* flag) {
  const std::atomic_ref<std::uint32_t> value(*flag);
  value = 0;
  const Status launched = cuda_status(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // No call of CUDA before the flag is set: while another thread loads kernels (cuDNN's does),
  // calls wait for it, and it for the device to be idle, which it is only when the graph has ended.
  const bool waited = value == 0;
  value = 1;  // in any case: what was launched must end
  const Status ended = wait_for(stream);
  DLAUNCH_RETURN_IF_ERROR(launched);
  DLAUNCH_RETURN_IF_ERROR(ended);
  if (!waited) return Status(StatusCode::kUnavailable, "the graph does not wait for the flag");
  if (value != 2) return Status(StatusCode::kUnavailable, "the graph does not write the flag");
  return Status();
}

/// A call without a graph, as the first steps are, and with nothing to wait for: kernels are loaded
/// by their first launch, which may want to wait for the device. Then as a graph, twice like a step
/// that is repeated.
Status try_calls(DeviceStream& stream, std::uint32_t* flag, void* scratch, const void* opened) {
  auto* const native = static_cast<cudaStream_t>(stream.native());
  const auto queue = [&] { return queue_a_call(stream, flag, scratch, opened); };
  *flag = 1;  // nobody looks at it yet
  DLAUNCH_RETURN_IF_ERROR(queue().within("without a graph"));
  DLAUNCH_RETURN_IF_ERROR(wait_for(native).within("without a graph"));
  Result<cudaGraphExec_t> graph = recorded(stream, queue);
  // Libraries that another thread starts meanwhile (cuDNN) may wait for the device, which breaks
  // off whatever is being recorded on it.
  for (int again = 0; !graph.ok() && again < kMoreRecordings; ++again) {
    (void)cudaGetLastError();
    std::this_thread::sleep_for(kBetweenRecordings);
    graph = recorded(stream, queue);
  }
  DLAUNCH_RETURN_IF_ERROR(graph.status());
  Status status = try_call(*graph, native, flag);
  if (status.ok()) status = try_call(*graph, native, flag).within("repeated");
  (void)cudaGraphExecDestroy(*graph);
  return status;
}

/// What others would open by its handle begins where the allocation does.
bool is_whole_allocation(void* memory) {
  static const auto get_range =
      reinterpret_cast<decltype(&cuMemGetAddressRange)>(find_in_driver("cuMemGetAddressRange"));
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  return get_range != nullptr && get_range(&base, &bytes, address) == CUDA_SUCCESS &&
         base == address;
}

int attribute_of(cudaDeviceAttr attribute, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) (void)cudaGetLastError();
  return value;
}

}  // namespace

Result<std::shared_ptr<CudaDevice>> CudaDevice::make(int number, cudaStream_t compute) {
  cudaDeviceProp properties{};
  DLAUNCH_RETURN_IF_ERROR(
      cuda_status(cudaGetDeviceProperties(&properties, number), "cudaGetDeviceProperties"));
  const CurrentDevice current(number);
  DLAUNCH_RETURN_IF_ERROR(load_reduction_kernels());
  auto* const batch_mem_op = reinterpret_cast<BatchMemOp>(find_in_driver("cuStreamBatchMemOp"));
  return std::shared_ptr<CudaDevice>(new CudaDevice(number, properties, compute, batch_mem_op));
}

DeviceUuid CudaDevice::uuid() const {
  return uuid_of(properties_);
}

bool CudaDevice::reaches(const DeviceUuid& other) const {
  if (other == uuid()) return true;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return false;
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return false;
    if (uuid_of(properties) != other) continue;
    int can = 0;
    return cudaDeviceCanAccessPeer(&can, number_, device) == cudaSuccess && can != 0;
  }
  return false;  // this process does not see it
}

bool CudaDevice::shares_memory() const {
  return batch_mem_op_ != nullptr && attribute_of(cudaDevAttrIpcEventSupport, number_) != 0;
}

// Tries it: the documentation of cuStreamBatchMemOp says nothing of graphs, only that they have
// nodes for it, nor that of graphs anything of memory that was opened.
Status CudaDevice::records_calls(const void* opened) {
  if (batch_mem_op_ == nullptr || opened == nullptr) {
    return Status(StatusCode::kUnavailable, "there are no flags, or no memory was opened");
  }
  const CurrentDevice current(number_);
  const auto word = allocate_pinned(sizeof(std::uint32_t));
  DLAUNCH_RETURN_IF_ERROR(word.status());
  const auto scratch = allocate(kProbedBytes);
  DLAUNCH_RETURN_IF_ERROR(scratch.status());
  const auto stream = make_stream(false);
  DLAUNCH_RETURN_IF_ERROR(stream.status());
  Status status =
      try_calls(**stream, static_cast<std::uint32_t*>(word->get()), scratch->get(), opened);
  // What was queued has not come to its end, but may yet.
  if (cudaStreamQuery(static_cast<cudaStream_t>((*stream)->native())) == cudaErrorNotReady) {
    (void)cudaGetLastError();
    abandon(*word);
    abandon(*scratch);
  }
  return status;
}

MemoryPlace CudaDevice::place_of(const void* memory) const {
  if (memory == nullptr) return MemoryPlace::kHost;
  const CurrentDevice current(number_);
  cudaPointerAttributes attributes{};
  const cudaError_t error = cudaPointerGetAttributes(&attributes, memory);
  if (error != cudaSuccess) (void)cudaGetLastError();
  return place_of_pointer(error, attributes, number_);
}

Result<std::unique_ptr<DeviceStream>> CudaDevice::make_stream(bool high_priority) {
  const CurrentDevice current(number_);
  int least = 0;
  int greatest = 0;
  DLAUNCH_RETURN_IF_ERROR(cuda_status(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                                      "cudaDeviceGetStreamPriorityRange"));
  cudaStream_t stream = nullptr;
  DLAUNCH_RETURN_IF_ERROR(
      cuda_status(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                               high_priority ? greatest : least),
                  "cudaStreamCreateWithPriority"));
  return std::unique_ptr<DeviceStream>(
      std::make_unique<CudaStream>(stream, events_, batch_mem_op_, pinned_, true));
}

// `free` waits for the device by itself, but while it does other threads' calls wait for it. So
// what comes before it waits, unless a step is being recorded, which that would break off.
std::shared_ptr<void> CudaDevice::owned(void* memory, cudaError_t (*free)(void*)) const {
  auto* const compute = static_cast<cudaStream_t>(compute_.native());
  return std::shared_ptr<void>(memory, [device = number_, compute, free](void* freed) {
    const CurrentDevice of_memory(device);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(compute, &capture) == cudaSuccess &&
        capture == cudaStreamCaptureStatusNone) {
      (void)cudaDeviceSynchronize();
    }
    (void)free(freed);
  });
}

Result<std::shared_ptr<void>> CudaDevice::allocate(std::size_t bytes) {
  const CurrentDevice current(number_);
  void* memory = nullptr;
  const std::size_t whole = round_up(std::max(bytes, std::size_t{1}), kDeviceGranule);
  DLAUNCH_RETURN_IF_ERROR(cuda_status(cudaMalloc(&memory, whole), "cudaMalloc"));
  return owned(memory, cudaFree);
}

Result<std::shared_ptr<void>> CudaDevice::allocate_pinned(std::size_t bytes) {
  const CurrentDevice current(number_);
  void* memory = nullptr;
  DLAUNCH_RETURN_IF_ERROR(
      cuda_status(cudaHostAlloc(&memory, std::max(bytes, std::size_t{1}), cudaHostAllocDefault),
                  "cudaHostAlloc"));
  return owned(memory, cudaFreeHost);
}

Result<std::shared_ptr<void>> CudaDevice::pin(std::span<std::byte> memory) {
  const CurrentDevice current(number_);
  DLAUNCH_RETURN_IF_ERROR(cuda_status(
      cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterMapped), "cudaHostRegister"));
  auto registered = owned(memory.data(), cudaHostUnregister);
  void* of_device = nullptr;
  DLAUNCH_RETURN_IF_ERROR(cuda_status(cudaHostGetDevicePointer(&of_device, memory.data(), 0),
                                      "cudaHostGetDevicePointer"));
  pinned_->add(memory.data(), memory.size(), reinterpret_cast<std::uintptr_t>(of_device));
  return std::shared_ptr<void>(
      memory.data(), [registered = std::move(registered), pinned = pinned_](void* host) mutable {
        pinned->remove(host);
        registered.reset();
      });
}

Result<MemoryHandle> CudaDevice::share(void* memory) {
  const CurrentDevice current(number_);
  if (!is_whole_allocation(memory)) {
    return Status(StatusCode::kUnavailable, "cudaMalloc has given part of a larger piece");
  }
  cudaIpcMemHandle_t of_cuda{};
  DLAUNCH_RETURN_IF_ERROR(
      cuda_status(cudaIpcGetMemHandle(&of_cuda, memory), "cudaIpcGetMemHandle"));
  MemoryHandle handle;
  static_assert(sizeof handle.bytes == sizeof of_cuda);
  std::memcpy(handle.bytes.data(), &of_cuda, sizeof of_cuda);
  return handle;
}

Result<std::shared_ptr<void>> CudaDevice::open(const MemoryHandle& handle) {
  const CurrentDevice current(number_);
  cudaIpcMemHandle_t of_cuda{};
  std::memcpy(&of_cuda, handle.bytes.data(), sizeof of_cuda);
  void* memory = nullptr;
  DLAUNCH_RETURN_IF_ERROR(
      cuda_status(cudaIpcOpenMemHandle(&memory, of_cuda, cudaIpcMemLazyEnablePeerAccess),
                  "cudaIpcOpenMemHandle"));
  return owned(memory, cudaIpcCloseMemHandle);
}

void CudaDevice::enter_thread() {
  (void)cudaSetDevice(number_);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
}

Result<std::unique_ptr<DevicePath>> CudaDevice::connect_native(Communicator& host,
                                                               std::chrono::nanoseconds timeout) {
  return connect_nccl_path(host, *this, number_, timeout);
}

}  // namespace dlaunch
