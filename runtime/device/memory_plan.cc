#include "runtime/device/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/round_up.h"

namespace dlaunch {
namespace {

using Kind = MemoryStep::Kind;

class Planner {
 public:
  explicit Planner(const MemoryShape& shape) : shape_(shape) {}

  std::vector<MemoryStep> plan() {
    if (shape_.world == 1) {
      if (total() > 0) steps_.push_back({.kind = Kind::kMove, .count = total()});
      return steps_;
    }
    if (shape_.counts.empty()) {
      plan_whole();
    } else {
      plan_parts();
    }
    return steps_;
  }

 private:
  std::size_t total() const {
    return shape_.counts.empty()
               ? shape_.count
               : std::accumulate(shape_.counts.begin(), shape_.counts.end(), std::size_t{0});
  }
  bool is_root() const { return shape_.rank == shape_.root; }

  void step(Kind kind) { steps_.push_back({.kind = kind}); }
  void meet(MemoryPhase phase) { steps_.push_back({.kind = Kind::kMeet, .phase = phase}); }
  // Joins what lies side by side.
  void move(Kind kind, int member, std::size_t place, std::size_t at, std::size_t count) {
    if (count == 0) return;
    if (!steps_.empty()) {
      MemoryStep& last = steps_.back();
      if (last.kind == kind && last.member == member && last.place + last.count == place &&
          last.at + last.count == at) {
        last.count += count;
        return;
      }
    }
    steps_.push_back({.kind = kind, .member = member, .place = place, .at = at, .count = count});
  }

  // all_reduce, reduce, broadcast: pieces of one vector, a slot at a time.
  void plan_whole() {
    for (std::size_t begin = 0; begin < shape_.count; begin += shape_.slot) {
      const std::size_t count = std::min(shape_.slot, shape_.count - begin);
      step(Kind::kAcquire);
      if (shape_.kind != CollectiveKind::kBroadcast || is_root()) {
        move(Kind::kLoad, 0, 0, begin, count);
      }
      meet(MemoryPhase::kReady);
      if (shape_.kind == CollectiveKind::kBroadcast) {
        if (!is_root()) move(Kind::kCopy, shape_.root, 0, begin, count);
      } else if (shape_.kind == CollectiveKind::kReduce) {
        if (is_root()) move(Kind::kReduceIntoOutput, 0, 0, begin, count);
      } else if (count <= shape_.one_shot) {
        move(Kind::kReduceIntoOutput, 0, 0, begin, count);
      } else {
        reduce_in_slices(begin, count);
      }
      step(Kind::kRelease);
    }
  }

  void reduce_in_slices(std::size_t begin, std::size_t count) {
    const Slice own = slice_of(count, shape_.rank, shape_.world);
    move(Kind::kReduceIntoSlot, 0, own.begin, own.begin, own.size());
    meet(MemoryPhase::kReduced);
    for (int member = 0; member < shape_.world; ++member) {
      const Slice slice = slice_of(count, member, shape_.world);
      move(Kind::kCopy, member, slice.begin, begin + slice.begin, slice.size());
    }
  }

  // In every round a rank's slot has the same share for every part it holds.
  void plan_parts() {
    const bool many_parts = shape_.kind != CollectiveKind::kAllGather &&
                            shape_.kind != CollectiveKind::kGather;  // in a slot
    const std::size_t longest = *std::ranges::max_element(shape_.counts);
    const std::size_t share =
        many_parts ? shape_.slot / static_cast<std::size_t>(shape_.world) : shape_.slot;
    // Where everything fits, parts lie in the slot as they do in the buffer, and are one copy.
    const bool fits = many_parts ? total() <= shape_.slot : longest <= shape_.slot;
    for (std::size_t done = 0; done < longest; done += fits ? longest : share) {
      step(Kind::kAcquire);
      load_parts(done, fits ? longest : share, fits);
      meet(MemoryPhase::kReady);
      take_parts(done, fits ? longest : share, fits);
      step(Kind::kRelease);
    }
  }

  std::size_t count_of(int rank) const { return shape_.counts[static_cast<std::size_t>(rank)]; }
  std::size_t offset_of(int rank) const {
    return std::accumulate(shape_.counts.begin(), shape_.counts.begin() + rank, std::size_t{0});
  }
  // Elements of rank `rank`'s part in a round that begins at element `done` of every part.
  std::size_t in_round(int rank, std::size_t done, std::size_t share) const {
    return count_of(rank) <= done ? 0 : std::min(share, count_of(rank) - done);
  }
  // Where in a slot that holds many parts.
  std::size_t place_of(int rank, std::size_t share, bool fits) const {
    return fits ? offset_of(rank) : static_cast<std::size_t>(rank) * share;
  }

  void load_parts(std::size_t done, std::size_t share, bool fits) {
    switch (shape_.kind) {
      case CollectiveKind::kGather:
      case CollectiveKind::kAllGather:
        return move(Kind::kLoad, 0, 0, done, in_round(shape_.rank, done, share));
      case CollectiveKind::kScatter:
        if (!is_root()) return;
        break;
      default:
        break;
    }
    for (int part = 0; part < shape_.world; ++part) {
      move(Kind::kLoad, 0, place_of(part, share, fits), offset_of(part) + done,
           in_round(part, done, share));
    }
  }

  void take_parts(std::size_t done, std::size_t share, bool fits) {
    const std::size_t own_place = place_of(shape_.rank, share, fits);
    const std::size_t own_count = in_round(shape_.rank, done, share);
    switch (shape_.kind) {
      case CollectiveKind::kScatter:
        return move(Kind::kCopy, shape_.root, own_place, done, own_count);
      case CollectiveKind::kReduceScatter:
        return move(Kind::kReduceIntoOutput, 0, own_place, done, own_count);
      case CollectiveKind::kAllToAll:
        for (int from = 0; from < shape_.world; ++from) {
          move(Kind::kCopy, from, own_place, offset_of(from) + done, own_count);
        }
        return;
      case CollectiveKind::kGather:
        if (!is_root()) return;
        break;
      default:
        break;
    }
    for (int from = 0; from < shape_.world; ++from) {
      move(Kind::kCopy, from, 0, offset_of(from) + done, in_round(from, done, share));
    }
  }

  const MemoryShape& shape_;
  std::vector<MemoryStep> steps_;
};

}  // namespace

Slice slice_of(std::size_t count, int rank, int world) {
  const std::size_t parts = static_cast<std::size_t>(world);
  const std::size_t length = round_up((count + parts - 1) / parts, kSliceUnit);
  const std::size_t begin = std::min(count, static_cast<std::size_t>(rank) * length);
  return {begin, std::min(count, begin + length)};
}

std::vector<MemoryStep> memory_plan(const MemoryShape& shape) {
  return Planner(shape).plan();
}

}  // namespace dlaunch
