// All-reduce for ranks on several hosts: inside the hosts, across them, inside them again, so that
// every byte crosses between hosts as seldom as possible.
//
// Bayatpour, Chakraborty, Subramoni et al., "Scalable reduction collectives with data
// partitioning-based multi-leader design" (SC 2017). With H hosts
// of m ranks, the vector is cut into m parts; rank j of a host reduces part j of the host's vectors
// (direct), all j-th ranks reduce it across the hosts (ring, butterfly or halving and doubling, by
// length and hosts), and hand it to the others of their host. n bytes; a, o, b as in direct.h
// inside a host, A, B across:
//   2a + 2(m-2)o + 2(m-1)/m nb + ng  +  all_reduce of n/m bytes on H ranks with A and mB
// (the m ranks of a host share its link). Hosts may have any number of ranks, and any ranks: the
// vector is cut into as many parts as the smallest host has ranks.
#pragma once

#include <span>

#include "runtime/collective/plan.h"
#include "runtime/collective/types.h"

namespace dlaunch {

/// host_of_rank: a number per rank of the world, equal for ranks of the same host.
/// input and output: `count` elements.
Plan hierarchical_all_reduce(int rank, std::span<const int> host_of_rank, std::size_t count);

/// What is done across `hosts` hosts with a part of `count` elements: kButterfly for short parts;
/// for longer ones kHalvingDoubling, which among powers of two sends no more bytes than a ring in
/// fewer steps, and kRing where it would send more, unless hosts are many and the part is of middle
/// length.
Algorithm algorithm_across_hosts(int hosts, std::size_t count);

}  // namespace dlaunch
