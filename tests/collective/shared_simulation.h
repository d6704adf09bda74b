// Runs the shared plans of all members of a group against each other, without memory or threads,
// in a random order of turns, and checks the rules of shared_plan.h and shared_group.h on the way.
//
// Every element remembers who wrote and read it, and when by the clock of each member (vector
// clocks, Lamport/Mattern): a read that no announcement puts behind the write that it needs, and a
// write that none puts behind the reads before it, are errors in whatever order the turns fall.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runtime/collective/shared_plan.h"

namespace dlaunch::testing {

/// One call of all members.
struct SimulatedCall {
  SharedShape shape;           // `member` is filled in
  std::vector<bool> in_place;  // by member: exposes its input where it lies, not in its slot
  bool aliased = false;        // input and output are the same memory, as far as the kind allows it
};

/// The calls one after the other, as every member makes them, all on one channel. A caller writes
/// over its buffers as soon as a call has ended. Empty if all is well, else what went wrong.
std::string simulate(const std::vector<SimulatedCall>& calls, int members, std::mt19937_64& random);

}  // namespace dlaunch::testing
