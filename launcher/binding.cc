#include "launcher/binding.h"

#include <algorithm>
#include <cstddef>
#include <thread>

namespace dlaunch {
namespace {

std::vector<int> usable() {
  std::vector<int> cores;
  cpu_set_t set;
  // Fails only where there are more cores than the set has room for; then nobody is bound.
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace

int usable_cores() {
  const auto cores = static_cast<int>(usable().size());
  return cores > 0 ? cores : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::vector<cpu_set_t> core_shares(int ranks) {
  const std::vector<int> cores = usable();
  const auto count = static_cast<std::size_t>(ranks);
  if (ranks < 2 || count > cores.size()) return {};
  const std::size_t each = cores.size() / count;
  std::vector<cpu_set_t> shares(count);
  for (std::size_t rank = 0; rank < count; ++rank) {
    CPU_ZERO(&shares[rank]);
    for (std::size_t i = 0; i < each; ++i) CPU_SET(cores[rank * each + i], &shares[rank]);
  }
  return shares;
}

}  // namespace dlaunch
