// The functions of include/cuda_runtime_api.h.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "tests/cuda_on_host/driver.h"
#include "tests/cuda_on_host/grid.h"
#include "tests/cuda_on_host/host_pages.h"
#include "tests/cuda_on_host/queue.h"

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's

struct CUstream_st {};
struct CUevent_st {
  std::shared_ptr<std::chrono::steady_clock::time_point> time =
      std::make_shared<std::chrono::steady_clock::time_point>();
};
struct CUgraph_st {
  std::vector<dlaunch::cuda_on_host::Work> work;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<dlaunch::cuda_on_host::Work>> work;
};

using dlaunch::cuda_on_host::device_pages;
using dlaunch::cuda_on_host::queue;

namespace dlaunch::cuda_on_host {

cudaError_t launch(Dimensions grid, Dimensions block, cudaStream_t stream, Work kernel) {
  constexpr std::uint64_t kMostThreads = 1024;
  constexpr unsigned kMostAlongX = 0x7fffffff;
  constexpr unsigned kMostAlongOthers = 65535;
  constexpr unsigned kMostLayers = 64;  // of threads
  if (grid.count() == 0 || block.count() == 0 || grid.x > kMostAlongX ||
      grid.y > kMostAlongOthers || grid.z > kMostAlongOthers || block.count() > kMostThreads ||
      block.z > kMostLayers)
    return cudaErrorInvalidConfiguration;
  ++launches;
  queue().add(stream, [=, kernel = std::move(kernel)] { run_grid(grid, block, kernel); });
  return cudaSuccess;
}

}  // namespace dlaunch::cuda_on_host

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    default:
      return "another error";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? queue().fault().c_str() : cudaGetErrorName(error);
}

cudaError_t cudaGetLastError() {
  return cudaSuccess;  // all callers look at what functions return
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device != 0) return cudaErrorInvalidValue;
  (void)cuCtxSetCurrent(dlaunch::cuda_on_host::primary_context());
  return cudaSuccess;
}

// So few multiprocessors that loops through the grid have more than one round.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  *value = attribute == cudaDevAttrMultiProcessorCount      ? 2
           : attribute == cudaDevAttrComputeCapabilityMajor ? 9
                                                            : 0;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  dlaunch::cuda_on_host::need_context();
  *memory = device_pages().allocate(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  const cudaError_t status = queue().drain();
  device_pages().release(memory);
  return status;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = std::size_t{1} << 30;
  *free = std::min(*total, device_pages().available());
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  *memory = std::malloc(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  const cudaError_t status = queue().drain();
  std::free(memory);
  return status;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  queue().add(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  queue().add(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  *attributes = {};
  return kernel == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return queue().capturing() ? cudaErrorStreamCaptureUnsupported : queue().drain();
}

cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) {
  return queue().capturing() ? cudaErrorStreamCaptureUnsupported : queue().drain();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  queue().add(stream, [time = event->time] { *time = queue().now(); });
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t /*event*/) {
  return queue().drain();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  if (queue().capturing()) return cudaErrorStreamCaptureUnsupported;
  queue().begin_capture(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t /*stream*/, cudaGraph_t* graph) {
  *graph = new CUgraph_st{queue().end_capture()};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *executable =
      new CUgraphExec_st{std::make_shared<std::vector<dlaunch::cuda_on_host::Work>>(graph->work)};
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  queue().add(stream, [all = executable->work] {
    for (const auto& work : *all) work();
  });
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

// NOLINTEND(readability-identifier-naming)
