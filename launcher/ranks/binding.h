// Which hardware threads each rank runs on (--bind).
//
// Ranks that wake each other are drawn to the same core by the scheduler, which takes them for a
// producer and its consumer; there they wait for each other's turn while another core idles. So
// where every rank can have cores of its own, it is bound to them.
#pragma once

#include <vector>

#include "launcher/options/placement_options.h"
#include "launcher/ranks/topology.h"

namespace dlaunch {

/// By rank, the numbers of its hardware threads, ascending.
using Shares = std::vector<std::vector<int>>;

/// `threads`, in the order of read_topology(), cut into equal shares of neighbours: of whole cores
/// where there are as many as ranks. What is left over lies between the shares. Empty where a rank
/// would have the share of another, or all of them anyway.
Shares core_shares(const std::vector<HardwareThread>& threads, int ranks);

/// Each rank to all threads of a NUMA node, neighbouring ranks to the same; or of several nodes if
/// there are more of them than ranks. Empty where there is one node.
Shares node_shares(const std::vector<HardwareThread>& threads, int ranks);

/// The shares of ranks on this machine as the user asked; empty: not bound.
Shares bind_ranks(PlacementOptions::Bind bind, int ranks);

}  // namespace dlaunch
