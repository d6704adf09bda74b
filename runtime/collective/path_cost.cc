#include "runtime/collective/path_cost.h"

#include <algorithm>
#include <bit>

#include "runtime/collective/hierarchical.h"

namespace dlaunch {
namespace {

int rounds_of(int ranks) {  // ceil(log2)
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}

// Counts what rounds of messages cost among the ranks of a world.
class Path {
 public:
  explicit Path(const TopologySummary& topology) : topology_(topology) {}

  PathCost cost;

  int ranks() const { return topology_.ranks; }
  double p() const { return topology_.ranks; }
  void reduce(double bytes) { cost.add(Effort::kReducedBytes, bytes, busy_); }
  void copy(double bytes) { cost.add(Effort::kCopiedBytes, bytes, busy_); }

  /// What `phase` adds is done by a share of the ranks at a time.
  template <typename Phase>
  void by_some(double share, const Phase& phase) {
    busy_ = share;
    phase();
    busy_ = 1;
  }

  /// What `phase` adds one rank does alone.
  template <typename Phase>
  void by_one(const Phase& phase) {
    by_some(1.0 / topology_.most_per_host, phase);
  }

  /// Every rank sends to, and receives from, ranks at `distance` round the ring.
  void shift(int distance, double bytes, double times = 1) {
    const int over_a_border = std::min(distance, ranks() - distance);
    round(topology_.hosts > 1, bytes, crossing(over_a_border), times);
  }

  /// Pairs whose numbers differ in the bit `distance`.
  void pair(int distance, double bytes) {
    const int neighbours = std::min(2, topology_.hosts - 1);
    round(!blocks_fit(distance), bytes, crossing(neighbours * distance), 1);
  }

  /// A binomial tree: at a level, of every 2 * distance ranks the first one and the one `distance`
  /// further have a message of `bytes_at(distance)`.
  template <typename BytesAt>
  void tree(const BytesAt& bytes_at) {
    int levels = 0;
    int between = 0;
    for (int distance = 1; distance < ranks(); distance *= 2) {
      const bool leaves = !blocks_fit(distance);
      const int messages = (ranks() - distance - 1) / (2 * distance) + 1;
      by_some(messages / p(), [&] {
        // Of consecutive ranks, those on both sides of a border of two hosts share a message.
        add_bytes(leaves, bytes_at(distance), std::min(messages, crossing(1)));
      });
      ++levels;
      between += leaves ? 1 : 0;
    }
    // A way from the root goes to higher ranks only, and so into each other host once.
    if (topology_.contiguous) between = std::min(between, topology_.hosts - 1);
    add(Effort::kHostLatency, levels - between);
    add(Effort::kNetworkLatency, between);
  }

  /// Slices go round the ring one after the other: `hops` until the last rank has the first one,
  /// and `bytes` pass any link until the last one has come.
  void pipeline(double hops, double bytes) {
    round(topology_.hosts > 1, bytes / hops, crossing(1), hops);
  }

  /// Every rank sends `bytes` to every other one at once.
  void all_at_once(double bytes) {
    const int near = topology_.most_per_host - 1;
    const int far = topology_.ranks - topology_.most_per_host;
    if (near > 0) {
      cost.add(Effort::kHostLatency, far > 0 ? 0 : 1);
      cost.add(Effort::kHostOverhead, far > 0 ? near : near - 1);
      cost.add(Effort::kHostBytes, near * bytes);
    }
    if (far > 0) {
      cost.add(Effort::kNetworkLatency, 1);
      cost.add(Effort::kNetworkOverhead, far - 1);
      cost.add(Effort::kNetworkBytes, static_cast<double>(far) * topology_.most_per_host * bytes);
    }
  }

  /// The same for one root, with one rank at a time.
  void root_and_all(double bytes) {
    by_one([&] { root_alone(bytes); });
  }

 private:
  void root_alone(double bytes) {
    const int near = topology_.most_per_host - 1;
    const int far = topology_.ranks - topology_.most_per_host;
    add(far > 0 ? Effort::kNetworkLatency : Effort::kHostLatency, 1);
    add(Effort::kHostOverhead, far > 0 ? near : near - 1);
    add(Effort::kHostBytes, near * bytes);
    add(Effort::kNetworkOverhead, far > 0 ? far - 1 : 0);
    add(Effort::kNetworkBytes, far * bytes);
  }

  // Blocks of 2 * distance ranks that begin at multiples of that are inside hosts.
  bool blocks_fit(int distance) const {
    return topology_.hosts == 1 ||
           (topology_.contiguous && topology_.most_per_host % (2 * distance) == 0);
  }

  // Messages of a round over one host's link: `over_borders` if the numbers of its ranks are
  // consecutive, but one of each rank at most.
  int crossing(int over_borders) const {
    const int most = topology_.most_per_host;
    return topology_.contiguous ? std::min(over_borders, most) : most;
  }

  void round(bool leaves, double bytes, int crossing, double times) {
    add(leaves ? Effort::kNetworkLatency : Effort::kHostLatency, times);
    add_bytes(leaves, times * bytes, crossing);
  }

  void add_bytes(bool leaves, double bytes, int crossing) {
    if (leaves) return add(Effort::kNetworkBytes, bytes * crossing);
    add(Effort::kHostBytes, bytes);
  }

  void add(Effort effort, double amount) { cost.add(effort, amount, busy_); }

  const TopologySummary& topology_;
  double busy_ = 1;
};

// The phases of which algorithms are made. `n` is the whole vector.

void ring_pass(Path& path, double n) {
  path.shift(1, n / path.p(), path.p() - 1);
}

// Recursive doubling or halving among the ranks that remain after folding; `n_of` is what is sent
// at a distance.
template <typename BytesAt>
void pairs(Path& path, const BytesAt& bytes_at) {
  const auto active = static_cast<int>(std::bit_floor(static_cast<unsigned>(path.ranks())));
  path.by_some(active / path.p(), [&] {
    for (int distance = 1; distance < active; distance *= 2) {
      path.pair(distance, bytes_at(distance, active));
    }
  });
}

bool folds(const Path& path) {
  return !std::has_single_bit(static_cast<unsigned>(path.ranks()));
}

double active_ranks(const Path& path) {
  return std::bit_floor(static_cast<unsigned>(path.ranks()));
}

void fold_in(Path& path, double n, bool reduces) {
  if (!folds(path)) return;
  path.by_some(1 - active_ranks(path) / path.p(), [&] {
    path.pair(1, n);
    if (reduces) path.reduce(n);
  });
}

void fold_out(Path& path, double n) {
  if (!folds(path)) return;
  path.by_some(1 - active_ranks(path) / path.p(), [&] { path.pair(1, n); });
}

void halving(Path& path, double n) {
  const double active = active_ranks(path);
  pairs(path, [n](int distance, int of) { return n * distance / of; });
  path.by_some(active / path.p(), [&] { path.reduce((active - 1) / active * n); });
}

void doubling(Path& path, double n) {
  pairs(path, [n](int distance, int of) { return n * distance / of; });
}

// A tree has as many messages as edges, and as many rounds as levels.
double busy_in_tree(const Path& path) {
  return (path.p() - 1) / (path.p() * rounds_of(path.ranks()));
}

// Whole vectors along the binomial tree, towards or from the root.
void tree_pass(Path& path, double n, bool reduces) {
  path.tree([n](int) { return n; });
  if (!reduces) return;
  path.by_some(busy_in_tree(path), [&] { path.reduce(rounds_of(path.ranks()) * n); });
}

// Every rank's `each` bytes along doubling distances.
void collect(Path& path, double each) {
  for (int distance = 1; distance < path.ranks(); distance *= 2) {
    path.shift(distance, std::min(distance, path.ranks() - distance) * each);
  }
}

// The same to the root of a tree, or the other way round.
void tree_collect(Path& path, double each) {
  path.tree([&](int distance) { return std::min(distance, path.ranks() - distance) * each; });
}

void bruck_collect(Path& path, double each) {
  collect(path, each);
  path.copy(each);
}

void bruck_exchange(Path& path, double n) {
  const int ranks = path.ranks();
  for (int distance = 1; distance < ranks; distance *= 2) {
    int blocks = 0;  // with that bit set in the number of ranks that they travel
    for (int i = distance; i < ranks; i += 2 * distance) blocks += std::min(distance, ranks - i);
    path.shift(distance, n * blocks / path.p());
    path.copy(n * blocks / path.p());
  }
}

void direct_collect(Path& path, double n) {
  path.all_at_once(n / path.p());
  // All of it is received before any is reduced: what caches do not hold of it comes back from
  // memory.
  constexpr double kCache = 4 << 20;  // bytes, about a core's share
  const double others = (path.p() - 1) / path.p() * n;
  path.copy(std::max(0.0, others - kCache));
  path.reduce(others);
}

// --- collectives

void hierarchical(Path& path, const CollectiveShape& shape, const TopologySummary& topology) {
  const double parts = topology.least_per_host;
  const double others = topology.most_per_host - 1;
  const double part = shape.bytes / parts;
  for (int phase = 0; phase < 2 && others > 0; ++phase) {
    path.cost.add(Effort::kHostLatency, 1);
    path.cost.add(Effort::kHostOverhead, others - 1);
    path.cost.add(Effort::kHostBytes, others * part);
  }
  path.reduce(others * part);
  if (topology.hosts == 1) return;
  const auto elements = static_cast<std::size_t>(part / static_cast<double>(shape.element_bytes));
  const TopologySummary leaders{.ranks = topology.hosts, .hosts = topology.hosts};
  const CollectiveShape across{.algorithm = algorithm_across_hosts(topology.hosts, elements),
                               .bytes = part};
  const PathCost cost = message_cost(across, leaders);
  for (const Effort effort : {Effort::kNetworkLatency, Effort::kNetworkOverhead,
                              Effort::kNetworkBytes, Effort::kReducedBytes}) {
    path.cost.add(effort, cost[effort] * (effort == Effort::kNetworkBytes ? parts : 1));
  }
}

// The running sums of p slices, each of which visits all ranks, and then `more` steps of slices
// that go to where they belong, of which `hops` are one after the other.
void chain(Path& path, double n, double hops, double more) {
  const double slice = n / path.p();
  path.pipeline(path.p() - 1 + hops, (path.p() - 1 + more) * slice);
  path.reduce((2 * path.p() - 2) * slice);
}

void all_reduce(Path& path, const CollectiveShape& shape, const TopologySummary& topology) {
  const double n = shape.bytes;
  const double p = path.p();
  const bool in_order = shape.order == ReduceOrder::kRanks;
  switch (shape.algorithm) {
    case Algorithm::kOneShot:
      path.all_at_once(n);
      return path.reduce((p - 1) * n);
    case Algorithm::kDirect:
      direct_collect(path, n);
      return path.all_at_once(n / p);
    case Algorithm::kTree:
      if (in_order) {
        tree_collect(path, n);
        if (p > 3) path.copy(n);  // on the way of a rank that is neither root nor leaf
        path.by_one([&] { path.reduce((p - 1) * n); });
      } else {
        tree_pass(path, n, true);
      }
      return tree_pass(path, n, false);
    case Algorithm::kRing:
      if (in_order) return chain(path, n, p - 1, 2 * (p - 1));
      ring_pass(path, n);
      path.reduce((p - 1) / p * n);
      return ring_pass(path, n);
    case Algorithm::kHalvingDoubling:
      if (in_order) {
        bruck_exchange(path, n);
        path.reduce((p - 1) / p * n);
        if (!folds(path)) return doubling(path, n);
        path.copy(n);
        return bruck_collect(path, n / p);
      }
      fold_in(path, n, true);
      halving(path, n);
      doubling(path, n);
      return fold_out(path, n);
    case Algorithm::kHierarchical:
      return in_order ? chain(path, n, p - 1, 2 * (p - 1)) : hierarchical(path, shape, topology);
    default:
      break;
  }
  if (in_order) {
    bruck_collect(path, n);
    return path.reduce((p - 1) * n);
  }
  fold_in(path, n, true);
  pairs(path, [n](int, int) { return n; });
  path.by_some(active_ranks(path) / p,
               [&] { path.reduce((rounds_of(static_cast<int>(active_ranks(path)))) * n); });
  fold_out(path, n);
}

void reduce_scatter(Path& path, const CollectiveShape& shape) {
  const double n = shape.bytes;
  const double p = path.p();
  const bool in_order = shape.order == ReduceOrder::kRanks;
  if (shape.algorithm == Algorithm::kDirect) return direct_collect(path, n);
  if (shape.algorithm == Algorithm::kHalvingDoubling && in_order) {
    bruck_exchange(path, n);
    return path.reduce((p - 1) / p * n);
  }
  if (shape.algorithm == Algorithm::kHalvingDoubling) {
    fold_in(path, n, true);
    halving(path, n);
    path.copy(n / p);
    return fold_out(path, n / p);
  }
  if (in_order) return chain(path, n, 1, p - 1);
  ring_pass(path, n);
  path.reduce((p - 1) / p * n);
}

void reduce(Path& path, const CollectiveShape& shape) {
  const double n = shape.bytes;
  const double p = path.p();
  const bool in_order = shape.order == ReduceOrder::kRanks;
  if (shape.algorithm == Algorithm::kDirect) {
    path.root_and_all(n);
    return path.by_one([&] { path.reduce((p - 1) * n); });
  }
  if (shape.algorithm == Algorithm::kRing) {
    if (in_order) return chain(path, n, 1, p);
    ring_pass(path, n);
    path.reduce((p - 1) / p * n);
    path.copy(n / p);
    return path.root_and_all(n / p);
  }
  if (!in_order) return tree_pass(path, n, true);
  tree_collect(path, n);
  if (p > 3) path.copy(n);  // on the way of a rank that is neither root nor leaf
  path.by_one([&] { path.reduce((p - 1) * n); });
}

void broadcast(Path& path, const CollectiveShape& shape) {
  if (shape.algorithm == Algorithm::kDirect) return path.root_and_all(shape.bytes);
  if (shape.algorithm != Algorithm::kRing) return tree_pass(path, shape.bytes, false);
  tree_collect(path, shape.bytes / path.p());
  ring_pass(path, shape.bytes);
}

void all_gather(Path& path, const CollectiveShape& shape) {
  const double n = shape.bytes;
  const double part = n / path.p();
  path.copy(shape.algorithm == Algorithm::kBruck ? n : part);
  switch (shape.algorithm) {
    case Algorithm::kButterfly:
      fold_in(path, part, false);
      doubling(path, n);
      return fold_out(path, n);
    case Algorithm::kBruck:
      return bruck_collect(path, part);
    case Algorithm::kDirect:
      return path.all_at_once(part);
    default:
      return ring_pass(path, n);
  }
}

}  // namespace

PathCost message_cost(const CollectiveShape& shape, const TopologySummary& topology) {
  Path path(topology);
  if (topology.ranks == 1) return path.cost;
  switch (shape.kind) {
    case CollectiveKind::kAllReduce:
      all_reduce(path, shape, topology);
      break;
    case CollectiveKind::kReduceScatter:
      reduce_scatter(path, shape);
      break;
    case CollectiveKind::kReduce:
      reduce(path, shape);
      break;
    case CollectiveKind::kBroadcast:
      broadcast(path, shape);
      break;
    case CollectiveKind::kAllGather:
      all_gather(path, shape);
      break;
    case CollectiveKind::kAllToAll:
      if (shape.algorithm == Algorithm::kBruck) {
        bruck_exchange(path, shape.bytes);
        path.copy(shape.bytes);
      } else {
        for (int s = 1; s < topology.ranks; ++s) path.shift(s, shape.bytes / path.p());
        path.copy(shape.bytes / path.p());
      }
      break;
    case CollectiveKind::kScatter:
    case CollectiveKind::kGather:
      path.root_and_all(shape.bytes / path.p());
      break;
    case CollectiveKind::kBarrier:
      for (int distance = 1; distance < topology.ranks; distance *= 2) path.shift(distance, 0);
      break;
  }
  return path.cost;
}

}  // namespace dlaunch
