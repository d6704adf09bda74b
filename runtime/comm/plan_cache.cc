#include "runtime/comm/plan_cache.h"

#include <algorithm>
#include <utility>

#include "runtime/collective/algorithms.h"
#include "runtime/comm/call_signature.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostEntries = 64;

}  // namespace

std::shared_ptr<const Plan> PlanCache::plan_for(const CollectiveCall& call) {
  const Key key{call.kind, call.algorithm, call.order, call.root, total_count(call, world_)};
  for (const Entry& entry : entries_) {
    if (entry.key == key && std::ranges::equal(entry.counts, call.counts) &&
        std::ranges::equal(entry.recv_counts, call.recv_counts)) {
      return entry.plan;
    }
  }
  Entry entry{.key = key,
              .counts = {call.counts.begin(), call.counts.end()},
              .recv_counts = {call.recv_counts.begin(), call.recv_counts.end()},
              .plan = std::make_shared<const Plan>(make_plan({.kind = call.kind,
                                                              .algorithm = call.algorithm,
                                                              .order = call.order,
                                                              .rank = rank_,
                                                              .world = world_,
                                                              .root = call.root,
                                                              .count = key.count,
                                                              .counts = call.counts,
                                                              .recv_counts = call.recv_counts}))};
  std::shared_ptr<const Plan> plan = entry.plan;
  if (entries_.size() < kMostEntries) {
    entries_.push_back(std::move(entry));
  } else {
    entries_[oldest_] = std::move(entry);
    oldest_ = (oldest_ + 1) % kMostEntries;
  }
  return plan;
}

}  // namespace dlaunch
