#include "runtime/comm/plan_cache.h"

#include <algorithm>
#include <utility>

#include "runtime/collective/butterfly.h"
#include "runtime/collective/dissemination.h"
#include "runtime/collective/linear.h"
#include "runtime/collective/ring.h"
#include "runtime/collective/tree.h"
#include "runtime/comm/call_signature.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostEntries = 64;

}  // namespace

template <typename MakePlan>
std::shared_ptr<const Plan> PlanCache::find_or_make(const Key& key,
                                                    std::span<const std::size_t> counts,
                                                    const MakePlan& make_plan) {
  for (const Entry& entry : entries_) {
    if (entry.key == key && std::ranges::equal(entry.counts, counts)) return entry.plan;
  }
  Entry entry{.key = key,
              .counts = {counts.begin(), counts.end()},
              .plan = std::make_shared<const Plan>(make_plan())};
  std::shared_ptr<const Plan> plan = entry.plan;
  if (entries_.size() < kMostEntries) {
    entries_.push_back(std::move(entry));
  } else {
    entries_[oldest_] = std::move(entry);
    oldest_ = (oldest_ + 1) % kMostEntries;
  }
  return plan;
}

std::shared_ptr<const Plan> PlanCache::plan_for(const CollectiveCall& call) {
  const std::size_t total = total_count(call, world_);
  const Key key{call.kind, call.algorithm, call.root, total};
  return find_or_make(key, call.counts, [&] { return make_plan(call, total); });
}

Plan PlanCache::make_plan(const CollectiveCall& call, std::size_t total) const {
  const auto parts = [&] {
    return call.counts.empty() ? Partition::equal(world_, total / static_cast<std::size_t>(world_))
                               : Partition::of(call.counts);
  };
  switch (call.kind) {
    case CollectiveKind::kBarrier:
      return dissemination_barrier(rank_, world_);
    case CollectiveKind::kBroadcast:
      return binomial_broadcast(rank_, world_, total, call.root);
    case CollectiveKind::kScatter:
      return linear_scatter(rank_, parts(), call.root);
    case CollectiveKind::kGather:
      return linear_gather(rank_, parts(), call.root);
    case CollectiveKind::kAllGather:
      return ring_all_gather(rank_, parts());
    case CollectiveKind::kReduce:
      return binomial_reduce(rank_, world_, total, call.root);
    case CollectiveKind::kReduceScatter:
      return ring_reduce_scatter(rank_, parts());
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllToAll:
      break;
  }
  return call.algorithm == Algorithm::kRing ? ring_all_reduce(rank_, world_, total)
                                            : butterfly_all_reduce(rank_, world_, total);
}

}  // namespace dlaunch
