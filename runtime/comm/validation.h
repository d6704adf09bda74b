// Checks of arguments, made before anything is sent. Pure functions; any thread may call them.
#pragma once

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"

namespace dlaunch {

/// kInvalidArgument, naming the call and what is wrong with it, unless rank `rank` of `size` may
/// make it. Only what this rank's part of the operation uses is looked at.
Status validate(const CollectiveCall& call, int rank, int size);

/// The same for one end of a point-to-point message; only a receive may be from kAnyRank.
Status validate_send(ConstBuffer data, int peer, int size);
Status validate_recv(Buffer data, int peer, int size);

}  // namespace dlaunch
