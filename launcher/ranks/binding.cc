#include "launcher/ranks/binding.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "runtime/base/usable_cores.h"

namespace dlaunch {
namespace {

// The threads in groups of those for which `key` is the same.
template <typename Key>
Shares grouped(const std::vector<HardwareThread>& threads, Key key) {
  Shares groups;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    if (i == 0 || threads[i].*key != threads[i - 1].*key) groups.emplace_back();
    groups.back().push_back(threads[i].number);
  }
  return groups;
}

// The groups from `begin` to `end` together.
std::vector<int> joined_shares(const Shares& groups, std::size_t begin, std::size_t end) {
  std::vector<int> all;
  for (std::size_t i = begin; i < end; ++i) {
    all.insert(all.end(), groups[i].begin(), groups[i].end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

Shares core_shares(const std::vector<HardwareThread>& threads, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  if (ranks < 2 || count > threads.size()) return {};
  Shares units = grouped(threads, &HardwareThread::core);
  if (count > units.size()) units = grouped(threads, &HardwareThread::number);
  const std::size_t each = units.size() / count;
  Shares shares;
  for (std::size_t rank = 0; rank < count; ++rank) {
    // What is left over lies between them, so that caches and memories have ranks alike; in whole
    // shares, so that none lies across two of them that would not have to.
    const std::size_t begin = rank * (units.size() / each) / count * each;
    shares.push_back(joined_shares(units, begin, begin + each));
  }
  return shares;
}

Shares node_shares(const std::vector<HardwareThread>& threads, int ranks) {
  const Shares nodes = grouped(threads, &HardwareThread::node);
  if (ranks < 2 || nodes.size() < 2) return {};
  const auto count = static_cast<std::size_t>(ranks);
  Shares shares;
  for (std::size_t rank = 0; rank < count; ++rank) {
    const std::size_t begin = rank * nodes.size() / count;
    shares.push_back(
        joined_shares(nodes, begin, std::max(begin + 1, (rank + 1) * nodes.size() / count)));
  }
  return shares;
}

Shares bind_ranks(PlacementOptions::Bind bind, int ranks) {
  if (bind == PlacementOptions::Bind::kNone || ranks < 2) return {};
  const std::vector<int> usable = usable_hardware_threads();
  const bool by_core = bind == PlacementOptions::Bind::kCore;
  if (by_core && static_cast<std::size_t>(ranks) > usable.size()) return {};
  const std::vector<HardwareThread> threads = read_topology(usable);
  return by_core ? core_shares(threads, ranks) : node_shares(threads, ranks);
}

}  // namespace dlaunch
