#include "runtime/comm/plan_cache.h"

#include <utility>

#include "runtime/base/usable_cores.h"
#include "runtime/collective/algorithms.h"

namespace dlaunch {
namespace {

std::shared_ptr<const Tuning> tuning_of_one_host(int world) {
  return std::make_shared<const Tuning>(
      Tuning{.topology = {.ranks = world, .cores_per_host = usable_cores()}});
}

}  // namespace

PlanCache::PlanCache(int rank, int world, std::shared_ptr<const Tuning> tuning)
    : rank_(rank),
      world_(world),
      tuning_(tuning != nullptr ? std::move(tuning) : tuning_of_one_host(world)),
      topology_(summarize(tuning_->topology)) {}

PlanCache::Planned PlanCache::plan_for(const CallShape& shape, const CollectiveCall& call) {
  return plans_.get(shape, call, [&] { return make(shape, call); });
}

PlanCache::Planned PlanCache::make(const CallShape& shape, const CollectiveCall& call) const {
  Algorithm algorithm = call.algorithm;
  if (algorithm == Algorithm::kAuto) {
    algorithm = choose({.kind = shape.kind,
                        .bytes = shape.count * shape.element,
                        .dtype = shape.dtype,
                        .order = shape.order,
                        .op = shape.op,
                        .equal_parts = call.counts.empty(),
                        .by_messages = true,
                        .topology = topology_},
                       tuning_->model);
  }
  return {algorithm, std::make_shared<const Plan>(
                         make_plan({.kind = shape.kind,
                                    .algorithm = algorithm,
                                    .order = shape.order,
                                    .rank = rank_,
                                    .world = world_,
                                    .root = shape.root,
                                    .count = shape.count,
                                    .counts = call.counts,
                                    .recv_counts = call.recv_counts,
                                    .host_of_rank = tuning_->topology.host_of_rank}))};
}

}  // namespace dlaunch
