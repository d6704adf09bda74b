#include "runtime/collective/topology.h"

#include <algorithm>
#include <unordered_map>

namespace dlaunch {

Topology subset(const Topology& topology, std::span<const int> members) {
  Topology part = topology;
  part.ranks = static_cast<int>(members.size());
  part.host_of_rank.clear();
  if (topology.host_of_rank.empty()) return part;
  for (const int member : members) {
    part.host_of_rank.push_back(topology.host_of_rank[static_cast<std::size_t>(member)]);
  }
  return part;
}

TopologySummary summarize(const Topology& topology) {
  TopologySummary summary{.ranks = topology.ranks,
                          .most_per_host = topology.ranks,
                          .least_per_host = topology.ranks,
                          .cores_per_host = std::max(1, topology.cores_per_host),
                          .shared_memory = topology.shared_memory};
  if (topology.host_of_rank.empty()) return summary;
  std::unordered_map<int, int> ranks_of_host;
  int runs = 0;
  for (std::size_t rank = 0; rank < topology.host_of_rank.size(); ++rank) {
    ++ranks_of_host[topology.host_of_rank[rank]];
    if (rank == 0 || topology.host_of_rank[rank] != topology.host_of_rank[rank - 1]) ++runs;
  }
  summary.hosts = static_cast<int>(ranks_of_host.size());
  summary.contiguous = runs == summary.hosts;
  summary.most_per_host = 0;
  for (const auto& [host, ranks] : ranks_of_host) {
    summary.most_per_host = std::max(summary.most_per_host, ranks);
    summary.least_per_host = std::min(summary.least_per_host, ranks);
  }
  return summary;
}

}  // namespace dlaunch
