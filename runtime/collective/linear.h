// Plans in which ranks talk to each other directly: the root sends or receives every part itself,
// each byte once: time (p-1)a + (p-1)/p nb at the root. Also the plans of point-to-point messages.
#pragma once

#include "runtime/collective/plan.h"

namespace dlaunch {

/// input: total() elements, used on the root only. output: part `rank`.
Plan linear_scatter(int rank, const Partition& parts, int root);

/// input: part `rank`. output: total() elements, used on the root only.
Plan linear_gather(int rank, const Partition& parts, int root);

/// input: `count` elements.
Plan send_message(int peer, std::size_t count);

/// output: `count` elements.
Plan recv_message(int peer, std::size_t count);

}  // namespace dlaunch
