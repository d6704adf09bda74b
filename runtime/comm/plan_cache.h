// PlanCache: the plan of a call, computed once per shape and kept.
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/collective/plan.h"
#include "runtime/comm/collective_call.h"

namespace dlaunch {

class PlanCache {
 public:
  PlanCache(int rank, int world) : rank_(rank), world_(world) {}

  /// `call` is valid, its algorithm is not kAuto where there is a choice.
  std::shared_ptr<const Plan> plan_for(const CollectiveCall& call);

 private:
  struct Key {
    CollectiveKind kind = CollectiveKind::kBarrier;
    Algorithm algorithm = Algorithm::kAuto;
    ReduceOrder order = ReduceOrder::kAny;
    int root = -1;
    std::size_t count = 0;

    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Entry {
    Key key;
    std::vector<std::size_t> counts;
    std::vector<std::size_t> recv_counts;
    std::shared_ptr<const Plan> plan;
  };

  int rank_;
  int world_;
  std::vector<Entry> entries_;
  std::size_t oldest_ = 0;  // the entry that gives way next
};

}  // namespace dlaunch
