#include "runtime/collective/algorithms.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "runtime/collective/bruck.h"
#include "runtime/collective/butterfly.h"
#include "runtime/collective/direct.h"
#include "runtime/collective/dissemination.h"
#include "runtime/collective/halving_doubling.h"
#include "runtime/collective/hierarchical.h"
#include "runtime/collective/linear.h"
#include "runtime/collective/long_vectors.h"
#include "runtime/collective/pairwise.h"
#include "runtime/collective/rank_order.h"
#include "runtime/collective/reduction.h"
#include "runtime/collective/ring.h"
#include "runtime/collective/tree.h"

namespace dlaunch {
namespace {

constexpr std::array kAllReduces = {
    Algorithm::kButterfly, Algorithm::kOneShot,         Algorithm::kDirect,      Algorithm::kTree,
    Algorithm::kRing,      Algorithm::kHalvingDoubling, Algorithm::kHierarchical};
constexpr std::array kReduceScatters = {Algorithm::kDirect, Algorithm::kHalvingDoubling,
                                        Algorithm::kRing};
constexpr std::array kReduces = {Algorithm::kTree, Algorithm::kDirect, Algorithm::kRing};
constexpr std::array kBroadcasts = {Algorithm::kTree, Algorithm::kDirect, Algorithm::kRing};
constexpr std::array kAllGathers = {Algorithm::kButterfly, Algorithm::kBruck, Algorithm::kDirect,
                                    Algorithm::kRing};
constexpr std::array kAllToAlls = {Algorithm::kBruck, Algorithm::kDirect};

Partition parts_of(const PlanRequest& request) {
  return request.counts.empty()
             ? Partition::equal(request.world,
                                request.count / static_cast<std::size_t>(request.world))
             : Partition::of(request.counts);
}

Plan all_reduce(const PlanRequest& request) {
  const auto [rank, world, count] = std::tuple(request.rank, request.world, request.count);
  const bool in_order = request.order == ReduceOrder::kRanks;
  switch (request.algorithm) {
    case Algorithm::kOneShot:
      return one_shot_all_reduce(rank, world, count);
    case Algorithm::kDirect:
      return direct_all_reduce(rank, world, count);
    case Algorithm::kTree:
      return in_order ? rank_order_tree_all_reduce(rank, world, count)
                      : tree_all_reduce(rank, world, count);
    case Algorithm::kRing:
      return in_order ? chain_all_reduce(rank, world, count) : ring_all_reduce(rank, world, count);
    case Algorithm::kHalvingDoubling:
      return in_order ? exchanging_all_reduce(rank, world, count)
                      : halving_doubling_all_reduce(rank, world, count);
    case Algorithm::kHierarchical: {
      // A running sum that visits the ranks in order stays inside a host as long as it can.
      if (in_order) return chain_all_reduce(rank, world, count);
      const std::vector<int> one_host(static_cast<std::size_t>(world), 0);
      return hierarchical_all_reduce(
          rank, request.host_of_rank.empty() ? one_host : request.host_of_rank, count);
    }
    default:
      return in_order ? gathering_all_reduce(rank, world, count)
                      : butterfly_all_reduce(rank, world, count);
  }
}

Plan reduce(const PlanRequest& request) {
  const auto [rank, world, count] = std::tuple(request.rank, request.world, request.count);
  const bool in_order = request.order == ReduceOrder::kRanks;
  switch (request.algorithm) {
    case Algorithm::kDirect:
      return direct_reduce(rank, world, count, request.root);
    case Algorithm::kRing:
      return in_order ? chain_reduce(rank, world, count, request.root)
                      : reduce_scatter_gather_reduce(rank, world, count, request.root);
    default:
      return in_order ? rank_order_tree_reduce(rank, world, count, request.root)
                      : binomial_reduce(rank, world, count, request.root);
  }
}

Plan reduce_scatter(const PlanRequest& request) {
  const Partition parts = parts_of(request);
  const bool in_order = request.order == ReduceOrder::kRanks;
  switch (request.algorithm) {
    case Algorithm::kDirect:
      return direct_reduce_scatter(request.rank, parts);
    case Algorithm::kHalvingDoubling:
      return in_order ? exchanging_reduce_scatter(request.rank, parts)
                      : recursive_halving_reduce_scatter(request.rank, parts);
    default:
      return in_order ? chain_reduce_scatter(request.rank, parts)
                      : ring_reduce_scatter(request.rank, parts);
  }
}

Plan broadcast(const PlanRequest& request) {
  const auto [rank, world, count] = std::tuple(request.rank, request.world, request.count);
  switch (request.algorithm) {
    case Algorithm::kDirect:
      return direct_broadcast(rank, world, count, request.root);
    case Algorithm::kRing:
      return scatter_all_gather_broadcast(rank, world, count, request.root);
    default:
      return binomial_broadcast(rank, world, count, request.root);
  }
}

Plan all_gather(const PlanRequest& request) {
  const Partition parts = parts_of(request);
  switch (request.algorithm) {
    case Algorithm::kButterfly:
      return recursive_doubling_all_gather(request.rank, parts);
    case Algorithm::kBruck:
      return bruck_all_gather(request.rank, parts);
    case Algorithm::kDirect:
      return direct_all_gather(request.rank, parts);
    default:
      return ring_all_gather(request.rank, parts);
  }
}

Plan all_to_all(const PlanRequest& request) {
  // Blocks on their way through other ranks must have sizes that those know.
  if (request.algorithm == Algorithm::kBruck && request.counts.empty()) {
    return bruck_all_to_all(request.rank, request.world,
                            request.count / static_cast<std::size_t>(request.world));
  }
  const Partition sent = parts_of(request);
  return pairwise_all_to_all(request.rank, sent,
                             request.counts.empty() ? sent : Partition::of(request.recv_counts));
}

// If messages carry what some of the ranks' inputs come to, or operands are combined two at a time.
bool carries_partial_results(CollectiveKind kind, Algorithm algorithm, ReduceOrder order) {
  const bool reduces = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
                       kind == CollectiveKind::kReduceScatter;
  if (!reduces || algorithm == Algorithm::kDirect || algorithm == Algorithm::kOneShot) return false;
  // In rank order the chains do; all others carry the operands themselves.
  return order == ReduceOrder::kAny || algorithm == Algorithm::kRing ||
         algorithm == Algorithm::kHierarchical;
}

}  // namespace

std::span<const Algorithm> algorithms_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return kAllReduces;
    case CollectiveKind::kReduceScatter:
      return kReduceScatters;
    case CollectiveKind::kReduce:
      return kReduces;
    case CollectiveKind::kBroadcast:
      return kBroadcasts;
    case CollectiveKind::kAllGather:
      return kAllGathers;
    case CollectiveKind::kAllToAll:
      return kAllToAlls;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kScatter:
    case CollectiveKind::kGather:
      break;
  }
  return {};
}

bool has_algorithm(CollectiveKind kind, Algorithm algorithm) {
  return std::ranges::find(algorithms_of(kind), algorithm) != algorithms_of(kind).end();
}

DType type_of_plan(CollectiveKind kind, Algorithm algorithm, ReduceOrder order, ReduceOp op,
                   DType dtype) {
  const bool adds = op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kProd;
  if (!adds || !carries_partial_results(kind, algorithm, order)) return dtype;
  return reduced_in(op, dtype);
}

Plan make_plan(const PlanRequest& request) {
  switch (request.kind) {
    case CollectiveKind::kBarrier:
      break;
    case CollectiveKind::kBroadcast:
      return broadcast(request);
    case CollectiveKind::kScatter:
      return linear_scatter(request.rank, parts_of(request), request.root);
    case CollectiveKind::kGather:
      return linear_gather(request.rank, parts_of(request), request.root);
    case CollectiveKind::kAllGather:
      return all_gather(request);
    case CollectiveKind::kReduce:
      return reduce(request);
    case CollectiveKind::kReduceScatter:
      return reduce_scatter(request);
    case CollectiveKind::kAllReduce:
      return all_reduce(request);
    case CollectiveKind::kAllToAll:
      return all_to_all(request);
  }
  return dissemination_barrier(request.rank, request.world);
}

}  // namespace dlaunch
