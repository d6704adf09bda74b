// PartName: explains errors of a part of the world to those who look at the whole job. A part, its
// lanes and its endpoints speak of its own ranks, as its callers do; in the world these have other
// numbers.
//
// A value, cheap to copy. Any thread may call any member.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "runtime/base/status.h"
#include "runtime/comm/work.h"

namespace dlaunch {

class PartName {
 public:
  /// Of the world, whose errors need no explanation.
  PartName() = default;

  /// Of a part of what has this name and `size` ranks: its rank i is rank members[i] of that. A
  /// part of all ranks in their order is called like the whole.
  PartName of_part(std::string name, std::span<const int> members, int size) const;

  /// The number that a rank of the part has in the world.
  int rank_in_world(int rank) const;

  /// Says in front which part the error is about, and which ranks of the world those are that it
  /// names: "in part world/1/1.1, whose rank 1 is rank 3 of the world: barrier #3: peer 1: ...".
  Status explain(const Status& status) const;
  /// The same for how `work` will end.
  Work explain(Work work) const;

 private:
  struct Part;
  std::shared_ptr<const Part> part_;  // nullptr: the world
};

}  // namespace dlaunch
