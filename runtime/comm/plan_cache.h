// PlanCache: the algorithm and the plan of a call that is carried out by messages, found once per
// shape and kept.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/collective/plan.h"
#include "runtime/collective/selection.h"
#include "runtime/comm/collective_call.h"

namespace dlaunch {

class PlanCache {
 public:
  struct Planned {
    Algorithm algorithm = Algorithm::kAuto;  // kAuto where there is no choice
    std::shared_ptr<const Plan> plan;
  };

  /// `tuning` is the same on all ranks; nullptr: all ranks are on one host and talk over TCP.
  PlanCache(int rank, int world, std::shared_ptr<const Tuning> tuning = nullptr);

  /// `call` is valid. If it leaves the algorithm open, all ranks choose the same.
  Planned plan_for(const CollectiveCall& call);

 private:
  struct Key {
    CollectiveKind kind = CollectiveKind::kBarrier;
    Algorithm algorithm = Algorithm::kAuto;  // as asked for
    ReduceOrder order = ReduceOrder::kAny;
    DType dtype = DType::kF32;
    int root = -1;
    std::size_t count = 0;
    std::size_t element_bytes = 0;

    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Entry {
    Key key;
    std::vector<std::size_t> counts;
    std::vector<std::size_t> recv_counts;
    Planned planned;
  };

  Planned make(const Key& key, const CollectiveCall& call) const;

  const int rank_;
  const int world_;
  const std::shared_ptr<const Tuning> tuning_;
  const TopologySummary topology_;
  std::vector<Entry> entries_;
  std::size_t newest_ = 0;  // the entry used last: calls of one shape come in a row
  std::size_t oldest_ = 0;  // the entry that gives way next
};

}  // namespace dlaunch
