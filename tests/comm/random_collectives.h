// Random collectives that check themselves: a seed and a step stand for one collective, with its
// kind, type, reduction, root, counts, algorithm and everybody's inputs, so that all ranks call the
// same without having spoken, and each can compute what it must receive. Expected values are plain
// sums in double (tests/comm/random_data.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/collective/types.h"
#include "runtime/comm/communicator.h"

namespace dlaunch::testing {

/// One of the sequence; a plain value.
struct RandomCollective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  Algorithm algorithm = Algorithm::kAuto;
  int root = 0;
  bool asynchronous = false;
  std::vector<std::size_t> counts;  // of every rank's part; one count for kinds without parts
  bool unequal = false;             // counts are given to the call
  std::uint64_t seed = 0;           // of the inputs

  /// "step 3: all_gather f16 counts 3 0 12 ...", for failed tests.
  std::string description;
};

/// Collective number `step`. A rank's part has at most `most_elements`.
RandomCollective random_collective(std::uint64_t seed, std::uint64_t step, int world,
                                   std::size_t most_elements);

/// How one went on this rank.
struct Verdict {
  Status status;      // what the call returned
  std::string wrong;  // what is wrong with the result of a successful call; empty if nothing
};

/// Carries it out and checks what this rank received.
Verdict carry_out(const RandomCollective& collective, Communicator& comm);

/// Steps `first` to `last` - 1. Empty if all are right, else what went wrong, with the step.
std::string run_random_collectives(Communicator& comm, std::uint64_t seed, std::uint64_t first,
                                   std::uint64_t last, std::size_t most_elements);

}  // namespace dlaunch::testing
