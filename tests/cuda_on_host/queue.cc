#include "tests/cuda_on_host/queue.h"

#include <utility>

#include "tests/cuda_on_host/grid.h"
#include "tests/cuda_on_host/host_pages.h"

namespace dlaunch::cuda_on_host {

void Queue::add(cudaStream_t stream, Work work) {
  if (!capturing() || stream != captured_stream_) return queued_.push_back(std::move(work));
  captured_.push_back(std::move(work));
  ++captured_launches_;
}

cudaError_t Queue::drain() {
  const std::vector<Work> all = std::exchange(queued_, {});
  if (all.empty()) return cudaSuccess;
  device_pages().set_accessible(true);
  cudaError_t status = cudaSuccess;
  try {
    for (const Work& work : all) work();
  } catch (const KernelFault& fault) {
    fault_ = fault.what();
    status = cudaErrorLaunchFailure;
  }
  device_pages().set_accessible(false);
  return status;
}

void Queue::begin_capture(cudaStream_t stream) {
  captured_stream_ = stream;
  captured_.clear();
  captured_launches_ = 0;
}

std::vector<Work> Queue::end_capture() {
  captured_stream_ = nullptr;
  return std::exchange(captured_, {});
}

Queue& queue() {
  static Queue the_one;
  return the_one;
}

}  // namespace dlaunch::cuda_on_host
