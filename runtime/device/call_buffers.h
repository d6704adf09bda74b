// Which buffers of a call a rank uses, and in which memory they are. Pure functions.
#pragma once

#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/collective_call.h"
#include "runtime/device/device.h"

namespace dlaunch {

/// Whether rank `rank` contributes to the call, and whether it receives something.
bool uses_input(const CollectiveCall& call, int rank);
bool uses_output(const CollectiveCall& call, int rank);

/// True if the call is on device memory, false if on the host's. The buffers with elements decide;
/// if this rank has none (a part without elements), its pointers do, null being the host. A call
/// that moves nothing on any rank is the host's. kInvalidArgument if the buffers are in different
/// memory, or on another device.
Result<bool> on_device(const CollectiveCall& call, int rank, int size, const Device& device);

}  // namespace dlaunch
