#include "runtime/collective/hierarchical.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>
#include <vector>

#include "runtime/collective/butterfly.h"
#include "runtime/collective/embedding.h"
#include "runtime/collective/halving_doubling.h"
#include "runtime/collective/ring.h"

namespace dlaunch {
namespace {

constexpr std::size_t kShortPart = 4096;  // elements
// Among a number of hosts that is no power of two, halving_doubling sends twice the bytes of a
// ring, in lg p steps instead of p: for parts up to this length, if the hosts are not few.
constexpr std::size_t kLongPart = 16384;
constexpr int kFewHosts = 8;

struct Hosts {
  std::vector<std::vector<int>> ranks;  // of every host, ascending; hosts by their first rank
  std::size_t own = 0;                  // this rank's host
  std::size_t place = 0;                // this rank among its host's
  std::size_t leaders = 0;              // ranks of every host that reduce a part

  Hosts(int rank, std::span<const int> host_of_rank) {
    std::map<int, std::size_t> index;
    for (std::size_t other = 0; other < host_of_rank.size(); ++other) {
      const auto [found, added] = index.try_emplace(host_of_rank[other], ranks.size());
      if (added) ranks.emplace_back();
      std::vector<int>& members = ranks[found->second];
      if (static_cast<int>(other) == rank) {
        own = found->second;
        place = members.size();
      }
      members.push_back(static_cast<int>(other));
    }
    leaders = ranks.front().size();
    for (const std::vector<int>& members : ranks) leaders = std::min(leaders, members.size());
  }

  const std::vector<int>& members() const { return ranks[own]; }
  /// The other members of this host, from the next one on, so that not all begin with the same.
  std::vector<std::size_t> others() const {
    std::vector<std::size_t> result;
    for (std::size_t distance = 1; distance < members().size(); ++distance) {
      result.push_back((place + distance) % members().size());
    }
    return result;
  }
  bool leads() const { return place < leaders; }
  std::vector<int> leaders_of(std::size_t part) const {
    std::vector<int> group;
    for (const std::vector<int>& members : ranks) group.push_back(members[part]);
    return group;
  }
};

Slice part_slice(const Partition& parts, Region region, std::size_t part) {
  return parts.slice(region, static_cast<int>(part));
}

// Brings part `place` of the host's vectors together on every leader and reduces it there.
void append_collection(Plan& plan, const Hosts& hosts, const Partition& parts) {
  const auto operand = [&](std::size_t member) {
    const Slice own = part_slice(parts, Region::kInput, hosts.place);
    if (member == hosts.place) return own;
    const std::size_t slot = member < hosts.place ? member : member - 1;
    return Slice{Region::kScratch, slot * own.count, own.count};
  };
  PlanStep exchange;
  for (const std::size_t other : hosts.others()) {
    const int peer = hosts.members()[other];
    if (other < hosts.leaders) {
      exchange.sends.push_back({peer, part_slice(parts, Region::kInput, other)});
    }
    if (hosts.leads()) exchange.recvs.push_back({.peer = peer, .into = operand(other)});
  }
  plan.steps.push_back(std::move(exchange));
  if (!hosts.leads()) return;
  PlannedReduction reduction;
  for (std::size_t member = 0; member < hosts.members().size(); ++member) {
    reduction.operands.push_back(operand(member));
  }
  reduction.into = part_slice(parts, Region::kOutput, hosts.place);
  plan.scratch = (hosts.members().size() - 1) * reduction.into.count;
  plan.steps.push_back({.reductions = {std::move(reduction)}});
}

void append_across(Plan& plan, const Hosts& hosts, const Partition& parts) {
  const std::vector<int> group = hosts.leaders_of(hosts.place);
  const int rank = static_cast<int>(hosts.own);
  const int world = static_cast<int>(group.size());
  const Slice part = part_slice(parts, Region::kOutput, hosts.place);
  const Embedding where{.ranks = group, .input = part, .output = part};
  switch (algorithm_across_hosts(world, part.count)) {
    case Algorithm::kButterfly:
      return append(plan, butterfly_all_reduce(rank, world, part.count), where);
    case Algorithm::kRing:
      return append(plan, ring_all_reduce(rank, world, part.count), where);
    default:
      return append(plan, halving_doubling_all_reduce(rank, world, part.count), where);
  }
}

void append_distribution(Plan& plan, const Hosts& hosts, const Partition& parts) {
  PlanStep exchange;
  for (const std::size_t other : hosts.others()) {
    const int peer = hosts.members()[other];
    if (hosts.leads()) {
      exchange.sends.push_back({peer, part_slice(parts, Region::kOutput, hosts.place)});
    }
    if (other < hosts.leaders) {
      exchange.recvs.push_back({.peer = peer, .into = part_slice(parts, Region::kOutput, other)});
    }
  }
  plan.steps.push_back(std::move(exchange));
}

}  // namespace

Algorithm algorithm_across_hosts(int hosts, std::size_t count) {
  if (count <= kShortPart) return Algorithm::kButterfly;
  if (std::has_single_bit(static_cast<unsigned>(hosts))) return Algorithm::kHalvingDoubling;
  return hosts <= kFewHosts || count > kLongPart ? Algorithm::kRing : Algorithm::kHalvingDoubling;
}

Plan hierarchical_all_reduce(int rank, std::span<const int> host_of_rank, std::size_t count) {
  const Hosts hosts(rank, host_of_rank);
  const Partition parts = Partition::even(static_cast<int>(hosts.leaders), count);
  Plan plan;
  append_collection(plan, hosts, parts);
  if (hosts.leads()) append_across(plan, hosts, parts);
  append_distribution(plan, hosts, parts);
  return plan;
}

}  // namespace dlaunch
