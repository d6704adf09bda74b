#include "runtime/collective/selection.h"

#include <algorithm>
#include <array>
#include <bit>

#include "runtime/collective/algorithms.h"

namespace dlaunch {
namespace {

// What every effort costs on hosts of this kind.
class Prices {
 public:
  Prices(const TopologySummary& topology, const CostModel& model)
      : topology_(topology), turns_(crowded() ? topology.most_per_host * model.turn : 0) {
    const MessageCost& inside = topology.shared_memory ? model.shared_message : model.host_message;
    const MessageCost& across = model.network_message;
    const int doublings = std::bit_width(static_cast<unsigned>(topology.most_per_host - 1));
    each_ = {crowded() ? turns_ : doublings * model.sync,
             inside.latency,
             inside.overhead,
             inside.per_byte,
             across.latency,
             across.overhead,
             across.per_byte,
             model.reduce_per_byte,
             model.copy_per_byte};
  }

  /// Seconds of one unit. Before a message inside a host can be answered, the other ranks of the
  /// core have had their turns.
  double of(Effort effort, const PathCost& cost) const {
    const double each = each_[static_cast<std::size_t>(effort)] * stretch(effort, cost);
    return effort == Effort::kHostLatency ? each + turns_ : each;
  }

  double of(const PathCost& cost) const {
    double seconds = 0;
    for (std::size_t i = 0; i < kEfforts; ++i) {
      const auto effort = static_cast<Effort>(i);
      seconds += cost[effort] * of(effort, cost);
    }
    return seconds;
  }

 private:
  bool crowded() const { return topology_.most_per_host > topology_.cores_per_host; }

  // How many times longer it takes where ranks share cores.
  double stretch(Effort effort, const PathCost& cost) const {
    const double crowd = topology_.crowd();
    switch (effort) {
      case Effort::kSync:
      case Effort::kNetworkBytes:
        return 1;
      case Effort::kHostBytes:
        return of_all(effort, cost, 0.5);  // the rest is the work of the other end
      case Effort::kReducedBytes:
      case Effort::kCopiedBytes:
        return of_all(effort, cost, 1);
      default:
        return crowd;  // who waits for a message looks for it in turn with those who work
    }
  }

  // Graham's bound: what all ranks do divided by the cores, and of the longest way what is left to
  // do while the other cores have nothing to do. `own` is the share of the work on it that the rank
  // on this way does itself.
  double of_all(Effort effort, const PathCost& cost, double own) const {
    if (!crowded() || cost[effort] == 0) return 1;
    const double others = 1 - 1.0 / topology_.cores_per_host;
    const double bound = topology_.crowd() * cost.mean(effort) / cost[effort] + own * others;
    return std::max(own, bound);  // whatever the others do, it does its own work
  }

  const TopologySummary& topology_;
  double turns_;
  std::array<double, kEfforts> each_{};
};

// Up to here a rank reduces everything alone, which saves one of two meetings. Where each has a
// core of its own, the meeting costs less than it takes to read all inputs sooner.
constexpr std::size_t kOneShotBytes = std::size_t{16} << 10;

bool in_shared_memory(const CollectiveQuery& query) {
  return !query.by_messages && query.topology.shared_memory && query.topology.hosts == 1;
}

PathCost cost_of(const CollectiveQuery& query, Algorithm algorithm) {
  const DType carried = type_of_plan(query.kind, algorithm, query.order, query.op, query.dtype);
  const auto elements =
      static_cast<double>(query.bytes) / static_cast<double>(size_of(query.dtype));
  const CollectiveShape shape{query.kind, algorithm, query.order,
                              elements * static_cast<double>(size_of(carried)), size_of(carried)};
  const bool by_messages = algorithm != Algorithm::kDirect && algorithm != Algorithm::kOneShot &&
                           algorithm != Algorithm::kAuto;
  if (in_shared_memory(query) && !by_messages) return shared_cost(shape, query.topology);
  PathCost cost = message_cost(shape, query.topology);
  if (carried != query.dtype) cost.add(Effort::kCopiedBytes, 2 * shape.bytes);  // there and back
  return cost;
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
  const bool alone =
      kind == CollectiveKind::kAllReduce && is_reduced_alone(bytes, ranks, core_each);
  return alone ? Algorithm::kOneShot : Algorithm::kDirect;
}

bool is_reduced_alone(std::size_t bytes, int ranks, bool core_each) {
  return bytes <= (core_each ? kOneShotBytes / static_cast<std::size_t>(ranks) : kOneShotBytes);
}

Algorithm choose(const CollectiveQuery& query, const CostModel& model) {
  const TopologySummary& topology = query.topology;
  if (in_shared_memory(query) && !algorithms_of(query.kind).empty()) {
    return choose_in_shared_memory(query.kind, query.bytes, topology.ranks,
                                   topology.most_per_host <= topology.cores_per_host);
  }
  const Prices prices(query.topology, model);
  Algorithm best = Algorithm::kAuto;
  double least = 0;
  for (const Algorithm algorithm : algorithms_of(query.kind)) {
    if (!possible(query, algorithm)) continue;
    const double seconds = prices.of(cost_of(query, algorithm));
    if (best == Algorithm::kAuto || seconds < least) {
      best = algorithm;
      least = seconds;
    }
  }
  return best;
}

std::vector<Prediction> predict(const CollectiveQuery& query, const CostModel& model) {
  const Prices prices(query.topology, model);
  std::vector<Prediction> predictions;
  const auto add = [&](Algorithm algorithm) {
    const PathCost cost = cost_of(query, algorithm);
    Prediction prediction{.algorithm = algorithm, .seconds = prices.of(cost)};
    for (std::size_t i = 0; i < kEfforts; ++i) {
      const auto effort = static_cast<Effort>(i);
      const Term term{effort, cost[effort], prices.of(effort, cost)};
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
