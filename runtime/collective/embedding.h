// How a plan becomes a part of a larger one: an algorithm for a few ranks and a slice of the data,
// used as a phase of another algorithm.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/collective/plan.h"

namespace dlaunch {

/// Where the part's ranks and memory are in the whole.
struct Embedding {
  std::span<const int> ranks;     // of the part's rank 0, 1, ...; empty: the same ones
  Slice input{Region::kInput};    // where its input begins; the counts of both are not used
  Slice output{Region::kOutput};  // where its output begins
  std::size_t scratch = 0;        // where its scratch memory begins
};

/// Adds the steps of `part` to `plan`. The rules of plan.h hold for the whole if input and output
/// of the part are apart, or the same and the part is a plan that works in place.
void append(Plan& plan, const Plan& part, const Embedding& where = {});

}  // namespace dlaunch
