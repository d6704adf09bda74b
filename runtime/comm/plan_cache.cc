#include "runtime/comm/plan_cache.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "runtime/collective/algorithms.h"
#include "runtime/comm/call_signature.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostEntries = 64;

std::shared_ptr<const Tuning> tuning_of_one_host(int world) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::make_shared<const Tuning>(
      Tuning{.topology = {.ranks = world, .cores_per_host = cores}});
}

}  // namespace

PlanCache::PlanCache(int rank, int world, std::shared_ptr<const Tuning> tuning)
    : rank_(rank),
      world_(world),
      tuning_(tuning != nullptr ? std::move(tuning) : tuning_of_one_host(world)),
      topology_(summarize(tuning_->topology)) {}

PlanCache::Planned PlanCache::plan_for(const CollectiveCall& call) {
  const DType dtype = dtype_of_call(call);
  const std::size_t element = call.record != nullptr ? call.record->bytes : size_of(dtype);
  const Key key{call.kind, call.algorithm, call.order, dtype, call.root, total_count(call, world_),
                element};
  const auto matches = [&](const Entry& entry) {
    return entry.key == key && std::ranges::equal(entry.counts, call.counts) &&
           std::ranges::equal(entry.recv_counts, call.recv_counts);
  };
  if (newest_ < entries_.size() && matches(entries_[newest_])) return entries_[newest_].planned;
  const auto found = std::ranges::find_if(entries_, matches);
  if (found != entries_.end()) {
    newest_ = static_cast<std::size_t>(found - entries_.begin());
    return found->planned;
  }
  Entry entry{.key = key,
              .counts = {call.counts.begin(), call.counts.end()},
              .recv_counts = {call.recv_counts.begin(), call.recv_counts.end()},
              .planned = make(key, call)};
  if (entries_.size() < kMostEntries) {
    newest_ = entries_.size();
    entries_.push_back(std::move(entry));
  } else {
    newest_ = std::exchange(oldest_, (oldest_ + 1) % kMostEntries);
    entries_[newest_] = std::move(entry);
  }
  return entries_[newest_].planned;
}

PlanCache::Planned PlanCache::make(const Key& key, const CollectiveCall& call) const {
  Algorithm algorithm = call.algorithm;
  if (algorithm == Algorithm::kAuto) {
    algorithm = choose({.kind = key.kind,
                        .bytes = key.count * key.element_bytes,
                        .dtype = key.dtype,
                        .order = key.order,
                        .equal_parts = call.counts.empty(),
                        .by_messages = true,
                        .topology = topology_},
                       tuning_->model);
  }
  return {algorithm, std::make_shared<const Plan>(
                         make_plan({.kind = key.kind,
                                    .algorithm = algorithm,
                                    .order = key.order,
                                    .rank = rank_,
                                    .world = world_,
                                    .root = key.root,
                                    .count = key.count,
                                    .counts = call.counts,
                                    .recv_counts = call.recv_counts,
                                    .host_of_rank = tuning_->topology.host_of_rank}))};
}

}  // namespace dlaunch
