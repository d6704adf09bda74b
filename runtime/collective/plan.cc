#include "runtime/collective/plan.h"

#include <algorithm>

namespace dlaunch {

std::size_t Plan::bytes() const {
  std::size_t bytes = steps.size() * sizeof(PlanStep);
  const auto add = [&bytes](const auto& parts) { bytes += parts.size() * sizeof(parts[0]); };
  for (const PlanStep& step : steps) {
    add(step.copies);
    add(step.reductions);
    for (const PlannedReduction& reduction : step.reductions) add(reduction.operands);
    add(step.divisions);
    add(step.sends);
    add(step.recvs);
  }
  return bytes;
}

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
