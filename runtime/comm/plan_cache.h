// PlanCache: the algorithm and the plan of a call that is carried out by messages, found once per
// shape and kept.
//
// One thread at a time.
#pragma once

#include <memory>

#include "runtime/collective/plan.h"
#include "runtime/collective/selection.h"
#include "runtime/comm/call_shape.h"
#include "runtime/comm/collective_call.h"

namespace dlaunch {

class PlanCache {
 public:
  struct Planned {
    Algorithm algorithm = Algorithm::kAuto;  // kAuto where there is no choice
    std::shared_ptr<const Plan> plan;
    std::size_t bytes() const { return plan->bytes(); }
  };

  /// `tuning` is the same on all ranks; nullptr: all ranks are on one host and talk over TCP.
  PlanCache(int rank, int world, std::shared_ptr<const Tuning> tuning = nullptr);

  /// `call` is valid and has this shape. If it leaves the algorithm open, all ranks choose the
  /// same.
  Planned plan_for(const CallShape& shape, const CollectiveCall& call);

 private:
  Planned make(const CallShape& shape, const CollectiveCall& call) const;

  const int rank_;
  const int world_;
  const std::shared_ptr<const Tuning> tuning_;
  const TopologySummary topology_;
  ShapeCache<Planned> plans_;
};

}  // namespace dlaunch
