// A Communicator for host memory and for the memory of an NVIDIA GPU. What it means on device
// memory stands in device/device_communicator.h, which path it takes and what it can promise in
// docs/gpu-collectives.md. In a build without CUDA the function is there and says so.
#pragma once

#include <memory>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device_communicator.h"

struct CUstream_st;  // cudaStream_t points to one

namespace dlaunch {

/// A collective of the ranks of `host`, with the same options. `device` is the number of this
/// rank's GPU among the visible ones, `compute` a stream of it, on which the computation is queued
/// and which outlives the communicator. kUnavailable in a build without CUDA.
Result<std::unique_ptr<DeviceWorld>> make_cuda_communicator(
    std::unique_ptr<Communicator> host, int device, CUstream_st* compute,
    const DeviceCommunicatorOptions& options = {});

}  // namespace dlaunch
