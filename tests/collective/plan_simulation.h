// Runs the plans of all ranks of a world against each other, without an endpoint, and checks the
// rules of plan.h on the way. Elements are symbolic: one remembers how often the input of every
// rank went into it, so that "reduced exactly once" can be read off.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/collective/plan.h"

namespace dlaunch::testing {

/// What an element is made of: (rank, index of the input element) -> how often it was added.
struct Symbol {
  std::map<std::pair<int, std::size_t>, int> parts;
  int divisions = 0;
  std::vector<int> order;  // the ranks, as they were added
  bool nested = false;     // the right side of an addition was a sum itself

  /// ((x0 + x1) + x2) + ...
  bool in_rank_order() const;
  friend bool operator==(const Symbol& a, const Symbol& b) {
    return a.parts == b.parts && a.divisions == b.divisions;
  }
};

using SymbolVector = std::vector<Symbol>;

struct SimulatedRank {
  Plan plan;
  SymbolVector input;
  SymbolVector output;
  SymbolVector scratch;
};

struct SimulationResult {
  std::vector<SymbolVector> outputs;  // by rank
  std::string error;                  // empty: every plan ended and every rule was kept
};

/// `plan_of(rank)` makes the plans. Messages move only when the sender and the receiver are both in
/// the step that names them (no buffering at all), so an end proves that no transport can deadlock.
SimulationResult simulate(int world, std::size_t input_count, std::size_t output_count,
                          const std::function<Plan(int)>& plan_of);

/// The same for counts that differ from rank to rank.
SimulationResult simulate(int world, const std::function<std::size_t(int)>& input_count,
                          const std::function<std::size_t(int)>& output_count,
                          const std::function<Plan(int)>& plan_of);

/// Input and output are the same memory of `count` elements.
SimulationResult simulate_in_place(int world, std::size_t count,
                                   const std::function<Plan(int)>& plan_of);

/// Element `index` of `rank`'s input, untouched.
Symbol input_symbol(int rank, std::size_t index);
/// Element `index` of all inputs, each once, divided once.
Symbol reduced_symbol(int world, std::size_t index);

}  // namespace dlaunch::testing
