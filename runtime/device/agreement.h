// agree: all ranks go on, or none does.
#pragma once

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"

namespace dlaunch {

/// ok if `own` is on all ranks; otherwise the failure of the lowest rank that has one, the same on
/// all ranks, its text cut at 500 characters. A collective of `host`, blocking.
Status agree(Communicator& host, const Status& own);

}  // namespace dlaunch
