// Makes all ranks begin with rank 0's state.
#pragma once

#include <span>

#include "runtime/comm/communicator.h"

namespace dlaunch {

/// Copies rank 0's contents of each buffer (parameters, running statistics) to all ranks. Ranks
/// whose buffers differ in number or size all get kMismatch. Blocks.
Status broadcast_state(Communicator& world, std::span<const Buffer> state);

}  // namespace dlaunch
