// Which algorithms each collective has, and the plan of any of them.
//
// Pure functions; any thread may call them.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/base/dtype.h"
#include "runtime/collective/plan.h"
#include "runtime/collective/types.h"

namespace dlaunch {

/// The algorithms of a collective as plans, in the order in which they are offered. scatter, gather
/// and barrier have one each.
std::span<const Algorithm> algorithms_of(CollectiveKind kind);
bool has_algorithm(CollectiveKind kind, Algorithm algorithm);

/// The type that a plan is to be carried out in for a reduction of `dtype`. Where messages carry
/// what some of the ranks' inputs add up to (or multiply to), or operands are combined two at a
/// time, f16 and bf16 are to be widened to f32 around the plan, and averages of short integers to
/// i64. Everywhere else every input travels as it is, and a result is rounded once, where it is
/// made.
DType type_of_plan(CollectiveKind kind, Algorithm algorithm, ReduceOrder order, ReduceOp op,
                   DType dtype);

/// What a plan is for. The parts of all ranks are known to every rank.
struct PlanRequest {
  CollectiveKind kind = CollectiveKind::kBarrier;
  Algorithm algorithm = Algorithm::kAuto;  // one of algorithms_of(kind)
  ReduceOrder order = ReduceOrder::kAny;
  int rank = 0;
  int world = 1;
  int root = -1;
  std::size_t count = 0;  // elements of the whole vector; of all parts together
  /// Elements of every rank's part; empty: count / world each. all_to_all: what this rank sends to
  /// every other one.
  std::span<const std::size_t> counts;
  std::span<const std::size_t> recv_counts;  // all_to_all: what it receives; empty if `counts` is
  std::span<const int> host_of_rank;         // hierarchical; empty: all on one host
};

Plan make_plan(const PlanRequest& request);

}  // namespace dlaunch
