// The logger of the store that dlaunch hosts.
#pragma once

#include "runtime/base/logging.h"

namespace dlaunch {

/// As make_logger("dlaunch"), but a line for which stderr has no room is lost: the store's thread
/// must not wait for a reader that does not read (| less), for all ranks and nodes wait for it.
Logger make_store_logger();

}  // namespace dlaunch
