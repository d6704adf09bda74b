// Topology: on which hosts the ranks of a world are, and what they share.
#pragma once

#include <span>
#include <vector>

namespace dlaunch {

struct Topology {
  int ranks = 1;
  std::vector<int> host_of_rank;  // equal numbers: the same host; empty: all on one
  int cores_per_host = 1;
  bool shared_memory = false;  // ranks of a host share memory; else they talk over TCP
};

/// What matters of it for the time of a collective.
struct TopologySummary {
  int ranks = 1;
  int hosts = 1;
  int most_per_host = 1;
  int least_per_host = 1;
  bool contiguous = true;  // the ranks of each host have consecutive numbers
  int cores_per_host = 1;
  bool shared_memory = false;

  /// How many ranks of a host have to take turns on one core.
  double crowd() const {
    return most_per_host > cores_per_host
               ? static_cast<double>(most_per_host) / static_cast<double>(cores_per_host)
               : 1.0;
  }
};

/// Of a part of the world: `members` are its ranks, in order.
Topology subset(const Topology& topology, std::span<const int> members);

TopologySummary summarize(const Topology& topology);

}  // namespace dlaunch
