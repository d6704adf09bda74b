// What is queued for a collective: one group of NCCL calls, or several with reductions by our
// kernels in between. Used by NcclPath, by one thread at a time for each lane.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/comm/collective_call.h"
#include "runtime/cuda/nccl_comm.h"
#include "runtime/device/device.h"
#include "runtime/device/lane_scratch.h"

namespace dlaunch {

struct NcclContext {
  NcclComm& comm;
  DeviceStream& stream;
  LaneScratch& scratch;  // of the stream's operations
  int rank = 0;
  int size = 1;
  Deadline deadline = Deadline::after({});  // for NCCL to queue what it is given
};

/// A valid call that NCCL serves (nccl_rules.h).
Status queue_by_nccl(const NcclContext& context, const CollectiveCall& call);

}  // namespace dlaunch
