// What an algorithm does on its longest way: messages, bytes and additions, in numbers. The
// formulas are those of the headers of the algorithms, for ranks on any number of hosts.
//
// Messages of a round are all at once. What ranks of one host send to other hosts at the same time
// shares the host's link: such bytes count as often. Rank 0 is the root.
//
// Where ranks share cores, what all of them do counts too: on the longest way of a tree, for one,
// only some are busy at a time.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "runtime/collective/topology.h"
#include "runtime/collective/types.h"

namespace dlaunch {

/// What is counted.
enum class Effort : std::uint8_t {
  kSync,             // synchronisations of all members through shared memory
  kHostLatency,      // messages one after the other, inside hosts
  kHostOverhead,     // further messages at the same time
  kHostBytes,        // bytes of them
  kNetworkLatency,   // the same between hosts
  kNetworkOverhead,  //
  kNetworkBytes,     //
  kReducedBytes,     // operands added
  kCopiedBytes
};
inline constexpr std::size_t kEfforts = 9;

/// "messages in a host", ...
std::string_view to_string(Effort effort);

class PathCost {
 public:
  /// On the longest way.
  double operator[](Effort effort) const { return amounts_[static_cast<std::size_t>(effort)]; }
  /// Of all ranks of a host together, divided by their number.
  double mean(Effort effort) const { return means_[static_cast<std::size_t>(effort)]; }
  /// `busy` is the share of the ranks that do it at the same time.
  void add(Effort effort, double amount, double busy = 1) {
    amounts_[static_cast<std::size_t>(effort)] += amount;
    means_[static_cast<std::size_t>(effort)] += amount * busy;
  }

 private:
  std::array<double, kEfforts> amounts_{};
  std::array<double, kEfforts> means_{};
};

/// One collective, as the formulas see it.
struct CollectiveShape {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Algorithm algorithm = Algorithm::kRing;
  ReduceOrder order = ReduceOrder::kAny;
  double bytes = 0;               // of the whole vector; of all parts together
  std::size_t element_bytes = 4;  // as they travel
};

/// Of the algorithm as a plan of messages (algorithms.h).
PathCost message_cost(const CollectiveShape& shape, const TopologySummary& topology);

/// Of kDirect or kOneShot in the memory that all ranks share (shared_plan.h).
PathCost shared_cost(const CollectiveShape& shape, const TopologySummary& topology);

}  // namespace dlaunch
