// Elementwise reductions of device memory by kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/collective/types.h"

namespace dlaunch {

/// Queues, on the current device: into[i] = operands[0][i] (op) operands[1][i] (op) ..., divided by
/// `divisor` if it is an average. At most kMostOperands (device/device.h). `into` may be an
/// operand.
Status queue_reduction(ReduceOp op, DType dtype, void* into, std::span<const void* const> operands,
                       std::size_t count, int divisor, cudaStream_t stream);

/// Loads all kernels of queue_reduction() on the current device. CUDA would load each with its
/// first launch, and might wait for the device with that: while what is queued there waits for
/// another rank.
Status load_reduction_kernels();

}  // namespace dlaunch
