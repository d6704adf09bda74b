#include "runtime/cuda/cuda_communicator.h"

#include <utility>

#include "runtime/cuda/cuda_device.h"
#include "runtime/device/agreement.h"

namespace dlaunch {

Result<std::unique_ptr<DeviceWorld>> make_cuda_communicator(
    std::unique_ptr<Communicator> host, int device, CUstream_st* compute,
    const DeviceCommunicatorOptions& options) {
  auto of_cuda = CudaDevice::make(device, compute);
  DLAUNCH_RETURN_IF_ERROR(agree(*host, of_cuda.status()));
  return make_device_communicator(std::move(host), *std::move(of_cuda), options);
}

}  // namespace dlaunch
