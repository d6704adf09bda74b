// Which cores each rank runs on.
//
// Ranks that wake each other are drawn to the same core by the scheduler, which takes them for a
// producer and its consumer; there they wait for each other's turn while another core idles. So
// where every rank can have cores of its own, it is bound to them.
#pragma once

#include <sched.h>

#include <vector>

namespace dlaunch {

/// How many cores dlaunch, and so its ranks, may use.
int usable_cores();

/// The usable cores cut into equal shares of neighbours, one per rank; empty where a rank would
/// have the share of another, or all cores anyway.
std::vector<cpu_set_t> core_shares(int ranks);

}  // namespace dlaunch
