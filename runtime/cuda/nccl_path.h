// NcclPath: collectives by NCCL, for ranks that have a GPU each.
//
// NCCL's own reductions are used where they do what Communicator promises; for the others (halves,
// whose sums are made in float, minima and maxima of floating types, which hand on NaN, averages of
// integers, the order of ranks) ranks exchange slices by NCCL and reduce them by our kernels, which
// moves as much as a ring does; so do reduce_scatters with unequal parts. With more ranks than the
// kernels take operands these go through the host instead.
//
// Communicators are non-blocking: no call waits for other ranks without a deadline, and abort ends
// what is in flight.
#pragma once

#include <chrono>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/device_path.h"

namespace dlaunch {

/// A collective of `host`, whose ranks have a device each; this one `device`, CUDA's device
/// `number`, which must outlive the path. kTimeout if it has not come about in time.
Result<std::unique_ptr<DevicePath>> connect_nccl_path(Communicator& host, Device& device,
                                                      int number, std::chrono::nanoseconds timeout);

}  // namespace dlaunch
