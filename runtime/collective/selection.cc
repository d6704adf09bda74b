#include "runtime/collective/selection.h"

#include <algorithm>
#include <array>
#include <bit>

#include "runtime/collective/algorithms.h"

namespace dlaunch {
namespace {

// Seconds of one unit of every effort. Ranks that share a core take turns with everything that the
// core does, and before a message can be answered the others have had theirs.
std::array<double, kEfforts> prices(const TopologySummary& topology, const CostModel& model) {
  const MessageCost& inside = topology.shared_memory ? model.shared_message : model.host_message;
  const MessageCost& across = model.network_message;
  const double crowd = topology.crowd();
  const int members = topology.most_per_host;
  const bool crowded = members > topology.cores_per_host;
  const double turns = crowded ? members * model.turn : 0;
  const int doublings = std::bit_width(static_cast<unsigned>(members - 1));
  return {crowded ? turns : doublings * model.sync,
          crowd * inside.latency + turns,
          crowd * inside.overhead,
          crowd * inside.per_byte,
          crowd * across.latency,
          crowd * across.overhead,
          across.per_byte,
          crowd * model.reduce_per_byte,
          crowd * model.copy_per_byte};
}

// Up to here every rank reduces everything, which saves one of two meetings. Where each has a core
// of its own, the meeting costs less than it takes to read all inputs sooner.
constexpr std::size_t kOneShotBytes = std::size_t{16} << 10;

// Halves are widened where sums of them travel.
bool widened(const CollectiveQuery& query, Algorithm algorithm) {
  const bool half = query.dtype == DType::kF16 || query.dtype == DType::kBF16;
  return half && carries_partial_sums(algorithm, query.kind, query.order);
}

bool in_shared_memory(const CollectiveQuery& query) {
  return !query.by_messages && query.topology.shared_memory && query.topology.hosts == 1;
}

PathCost cost_of(const CollectiveQuery& query, Algorithm algorithm) {
  const auto bytes = static_cast<double>(query.bytes);
  CollectiveShape shape{query.kind, algorithm, query.order, bytes, size_of(query.dtype)};
  const bool by_messages = algorithm != Algorithm::kDirect && algorithm != Algorithm::kOneShot &&
                           algorithm != Algorithm::kAuto;
  if (in_shared_memory(query) && !by_messages) return shared_cost(shape, query.topology);
  if (!widened(query, algorithm)) return message_cost(shape, query.topology);
  shape.bytes *= 2;
  shape.element_bytes *= 2;
  PathCost cost = message_cost(shape, query.topology);
  cost.add(Effort::kCopiedBytes, 2 * shape.bytes);
  return cost;
}

double seconds_of(const PathCost& cost, const std::array<double, kEfforts>& price) {
  double seconds = 0;
  for (std::size_t i = 0; i < kEfforts; ++i) seconds += cost[static_cast<Effort>(i)] * price[i];
  return seconds;
}

bool possible(const CollectiveQuery& query, Algorithm algorithm) {
  if (algorithm == Algorithm::kHierarchical) return query.topology.hosts > 1;
  if (algorithm == Algorithm::kBruck) {
    return query.equal_parts || query.kind != CollectiveKind::kAllToAll;
  }
  return true;
}

}  // namespace

Algorithm choose_in_shared_memory(CollectiveKind kind, std::size_t bytes, int ranks,
                                  bool core_each) {
  const std::size_t most =
      core_each ? kOneShotBytes / static_cast<std::size_t>(ranks) : kOneShotBytes;
  const bool is_short = kind == CollectiveKind::kAllReduce && bytes <= most;
  return is_short ? Algorithm::kOneShot : Algorithm::kDirect;
}

Algorithm choose(const CollectiveQuery& query, const CostModel& model) {
  const TopologySummary& topology = query.topology;
  if (in_shared_memory(query) && !algorithms_of(query.kind).empty()) {
    return choose_in_shared_memory(query.kind, query.bytes, topology.ranks,
                                   topology.most_per_host <= topology.cores_per_host);
  }
  const auto price = prices(query.topology, model);
  Algorithm best = Algorithm::kAuto;
  double least = 0;
  for (const Algorithm algorithm : algorithms_of(query.kind)) {
    if (!possible(query, algorithm)) continue;
    const double seconds = seconds_of(cost_of(query, algorithm), price);
    if (best == Algorithm::kAuto || seconds < least) {
      best = algorithm;
      least = seconds;
    }
  }
  return best;
}

std::vector<Prediction> predict(const CollectiveQuery& query, const CostModel& model) {
  const auto price = prices(query.topology, model);
  std::vector<Prediction> predictions;
  const auto add = [&](Algorithm algorithm) {
    const PathCost cost = cost_of(query, algorithm);
    Prediction prediction{.algorithm = algorithm, .seconds = seconds_of(cost, price)};
    for (std::size_t i = 0; i < kEfforts; ++i) {
      const Term term{static_cast<Effort>(i), cost[static_cast<Effort>(i)], price[i]};
      if (term.amount > 0) prediction.terms.push_back(term);
    }
    predictions.push_back(std::move(prediction));
  };
  for (const Algorithm algorithm : algorithms_of(query.kind)) {
    if (possible(query, algorithm)) add(algorithm);
  }
  if (predictions.empty()) add(Algorithm::kAuto);
  std::ranges::stable_sort(predictions, {}, &Prediction::seconds);
  return predictions;
}

}  // namespace dlaunch
