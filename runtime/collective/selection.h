// Which algorithm a collective uses when the caller leaves it open: the one of which the cost model
// predicts the shortest time.
//
// Pure functions of values that are the same on all ranks, so all choose the same.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/collective/cost_model.h"
#include "runtime/collective/path_cost.h"
#include "runtime/collective/topology.h"
#include "runtime/collective/types.h"

namespace dlaunch {

/// A collective that is to be carried out.
struct CollectiveQuery {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::size_t bytes = 0;  // of the whole vector; of all parts together
  DType dtype = DType::kF32;
  ReduceOrder order = ReduceOrder::kAny;
  ReduceOp op = ReduceOp::kSum;
  bool equal_parts = true;   // an all_to_all with unequal ones has one algorithm only
  bool by_messages = false;  // also where all ranks share memory
  TopologySummary topology;
};

/// What all ranks of a world know of it, to choose by.
struct Tuning {
  Topology topology;
  CostModel model;
};

/// One summand of a prediction: `amount` of something at `each` seconds.
struct Term {
  Effort effort = Effort::kSync;
  double amount = 0;
  double each = 0;
  double seconds() const { return amount * each; }
};

struct Prediction {
  Algorithm algorithm = Algorithm::kAuto;
  double seconds = 0;
  std::vector<Term> terms;  // those that are not zero
};

/// kAuto for a collective that has one algorithm only. Allocates nothing.
Algorithm choose(const CollectiveQuery& query, const CostModel& model);

/// The same where all ranks work directly in memory that they share; never kAuto.
Algorithm choose_in_shared_memory(CollectiveKind kind, std::size_t bytes, int ranks,
                                  bool core_each);

/// True if there whoever needs the sum of vectors of so many bytes computes all of it alone (every
/// rank of an all_reduce, which is called kOneShot; the root of a reduce).
bool is_reduced_alone(std::size_t bytes, int ranks, bool core_each);

/// All algorithms of the collective, the quickest first.
std::vector<Prediction> predict(const CollectiveQuery& query, const CostModel& model);

}  // namespace dlaunch
