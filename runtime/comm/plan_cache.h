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

  /// `call` is valid, its algorithm is not kAuto if it is an all_reduce.
  std::shared_ptr<const Plan> plan_for(const CollectiveCall& call);

 private:
  struct Key {
    CollectiveKind kind = CollectiveKind::kBarrier;
    Algorithm algorithm = Algorithm::kAuto;
    int root = -1;
    std::size_t count = 0;

    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Entry {
    Key key;
    std::vector<std::size_t> counts;
    std::shared_ptr<const Plan> plan;
  };

  template <typename MakePlan>
  std::shared_ptr<const Plan> find_or_make(const Key& key, std::span<const std::size_t> counts,
                                           const MakePlan& make_plan);
  Plan make_plan(const CollectiveCall& call, std::size_t total) const;

  int rank_;
  int world_;
  std::vector<Entry> entries_;
  std::size_t oldest_ = 0;  // the entry that gives way next
};

}  // namespace dlaunch
