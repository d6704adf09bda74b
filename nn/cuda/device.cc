#include "nn/cuda/device.h"

#include <string>
#include <utility>

#include "nn/core/error.h"
#include "nn/cuda/check.h"
#include "nn/cuda/device_memory.h"

namespace dlaunch::nn::cuda {
namespace {

const char* describe(int fault) {
  switch (fault) {
    case kSingleRow:
      return "batch normalisation: a batch has a single value per channel, training needs more";
    case kLabelOutOfRange:
      return "cross_entropy: a label is out of range";
    default:
      return "a kernel found something wrong that has no name";
  }
}

}  // namespace

Device::Device(int number)
    : number_(number),
      pools_(make_device_memory(number, [this] { return wait_for_all_streams(); }),
             make_device_memory(number, [this] { return wait_for_all_streams(); })) {
  try {
    make();
  } catch (...) {
    destroy();
    throw;
  }
}

Device::~Device() {
  destroy();
}

void Device::make() {
  check(cudaSetDevice(number_), "device");
  int minor = 0;
  check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, number_),
        "device");
  check(cudaDeviceGetAttribute(&capability_, cudaDevAttrComputeCapabilityMajor, number_), "device");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, number_), "device");
  capability_ = 10 * capability_ + minor;
  void* fault = nullptr;
  check(cudaHostAlloc(&fault, sizeof(int), cudaHostAllocMapped), "device");
  fault_ = static_cast<int*>(fault);
  *fault_ = kNoFault;
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "device");
  // From the pool, which goes with this object.
  random_blocks_memory_ =
      static_cast<std::uint64_t*>(pools_.allocate(sizeof *random_blocks_memory_));
  check(cudaMemsetAsync(random_blocks_memory_, 0, sizeof *random_blocks_memory_, stream_),
        "device");
}

// Of what make() has come to. Whether the device is well is of no interest any more.
void Device::destroy() noexcept {
  ending_ = true;
  ignore(cudaSetDevice(number_));
  if (stream_ != nullptr) {
    ignore(cudaStreamSynchronize(stream_));
    ignore(cudaStreamDestroy(stream_));
  }
  if (fault_ != nullptr) ignore(cudaFreeHost(fault_));
}

// cudaFree waits too, but while it does other threads' calls wait for it. So a peer's flag that
// never comes, for which a stream of collectives waits, would go unnoticed. While a step is being
// recorded neither may be called, which would break that off; the recording then fails for want of
// memory, and says so.
bool Device::wait_for_all_streams() const {
  if (pools_.recording()) return false;
  if (!ending_) ignore(cudaDeviceSynchronize());
  return true;
}

void Device::refuse_while_recording(const char* what) const {
  if (pools_.recording())
    throw Error(
        std::string(what) +
        ": not while a step is recorded as a CUDA graph; train.cuda_graphs false avoids it");
}

void Device::synchronize() {
  refuse_while_recording("waiting for the device");
  check(cudaStreamSynchronize(stream_), "kernels");
  if (*fault_ != kNoFault) throw Error(describe(std::exchange(*fault_, kNoFault)));
}

}  // namespace dlaunch::nn::cuda
