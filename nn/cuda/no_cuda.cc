// In place of the CUDA backend, in a build without CUDA.
#include "nn/core/error.h"
#include "nn/cuda/cuda_backend.h"
#include "nn/cuda/device_timer.h"

namespace dlaunch::nn {

std::string why_no_cuda() {
  return "this build has no CUDA";
}

bool built_with_cuda() {
  return false;
}

int cuda_devices() {
  return 0;
}

std::unique_ptr<CudaBackend> make_cuda_backend(const CudaOptions& /*options*/) {
  throw Error(why_no_cuda());
}

std::unique_ptr<DeviceTimer> make_device_timer(CUstream_st* /*stream*/) {
  throw Error(why_no_cuda());
}

}  // namespace dlaunch::nn
