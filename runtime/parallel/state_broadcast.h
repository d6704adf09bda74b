// Makes all ranks begin with the state of one.
#pragma once

#include <span>

#include "runtime/comm/communicator.h"

namespace dlaunch {

/// Copies rank 0's contents of each buffer (parameters, running statistics) to all ranks. Ranks
/// whose buffers differ in number, size or type all get kMismatch. Blocks.
Status broadcast_state(Communicator& world, std::span<const Buffer> state);

}  // namespace dlaunch
