#include "runtime/collective/plan.h"

#include <algorithm>

namespace dlaunch {

Partition Partition::equal(int parts, std::size_t each) {
  Partition partition;
  for (int part = 0; part < parts; ++part) {
    partition.offsets_.push_back(partition.total() + each);
  }
  return partition;
}

Partition Partition::even(int parts, std::size_t count) {
  const auto divisor = static_cast<std::size_t>(parts);
  Partition partition;
  for (std::size_t part = 0; part < divisor; ++part) {
    partition.offsets_.push_back(partition.total() + count / divisor +
                                 (part < count % divisor ? 1 : 0));
  }
  return partition;
}

Partition Partition::of(std::span<const std::size_t> counts) {
  Partition partition;
  for (const std::size_t count : counts) partition.offsets_.push_back(partition.total() + count);
  return partition;
}

std::size_t Partition::longest() const {
  std::size_t longest = 0;
  for (int part = 0; part < parts(); ++part) longest = std::max(longest, count(part));
  return longest;
}

}  // namespace dlaunch
