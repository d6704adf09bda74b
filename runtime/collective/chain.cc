#include <cstdlib>
#include <utility>

#include "runtime/collective/rank_order.h"

// Time runs in steps: in step t rank r < p-1 sends the running sum of slice t - r to the next rank,
// which receives it in the same step. The whole sum of slice q is on rank p-1 after step q + p - 2
// and leaves it in the next one.

namespace dlaunch {
namespace {

// The steps of one rank by time; those in which it does nothing are left out at the end.
class Timetable {
 public:
  PlanStep& at(int time) {
    const auto index = static_cast<std::size_t>(time);
    if (steps_.size() <= index) steps_.resize(index + 1);
    return steps_[index];
  }
  std::vector<PlanStep> take() {
    std::erase_if(steps_, [](const PlanStep& step) {
      return step.copies.empty() && step.divisions.empty() && step.sends.empty() &&
             step.recvs.empty();
    });
    return std::move(steps_);
  }

 private:
  std::vector<PlanStep> steps_;
};

// Adds the way of the running sums. `sum(q)` is where this rank keeps that of slice q; on the last
// rank it is the whole one.
template <typename Sum>
void append_chain(Timetable& table, int rank, const Partition& parts, const Sum& sum) {
  const int world = parts.parts();
  for (int q = 0; q < parts.parts(); ++q) {
    const Slice input = parts.slice(Region::kInput, q);
    if (rank > 0) {
      table.at(q + rank - 1)
          .recvs.push_back({rank - 1, sum(q), Landing::kReduceReceivedFirst, input});
    }
    if (rank < world - 1) {
      table.at(q + rank).sends.push_back({rank + 1, rank == 0 ? input : sum(q)});
    }
  }
}

Plan alone(std::size_t count) {
  const Slice whole{Region::kOutput, 0, count};
  return {.steps = {{.copies = {{{Region::kInput, 0, count}, whole}}, .divisions = {whole}}}};
}

// The running sums visit all ranks; slice q ends on `owner(q)`, as `result(q)`.
template <typename Owner, typename Result>
Plan chain_to_owners(int rank, const Partition& parts, const Owner& owner, const Result& result) {
  const int last = parts.parts() - 1;
  // A running sum is kept for one step, in which the next one comes in.
  const std::size_t half = parts.longest();
  Plan plan{.scratch = rank > 0 ? 2 * half : 0};
  const auto sum = [&](int q) {
    if (rank == last && owner(q) == last) return result(q);
    return Slice{Region::kScratch, q % 2 == 0 ? 0 : half, parts.count(q)};
  };
  Timetable table;
  append_chain(table, rank, parts, sum);
  for (int q = 0; q <= last; ++q) {
    if (rank == last) {
      PlanStep& step = table.at(q + last);
      step.divisions.push_back(sum(q));
      if (owner(q) != last) step.sends.push_back({owner(q), sum(q)});
    } else if (rank == owner(q)) {
      table.at(q + last).recvs.push_back({.peer = last, .into = result(q)});
    }
  }
  plan.steps = table.take();
  return plan;
}

}  // namespace

Plan chain_all_reduce(int rank, int world, std::size_t count) {
  if (world == 1) return alone(count);
  const Partition parts = Partition::even(world, count);
  const int last = world - 1;
  Timetable table;
  append_chain(table, rank, parts, [&](int q) { return parts.slice(Region::kOutput, q); });
  // Whole sums go on from the last rank to 0, 1, ... and end on the last but one.
  for (int q = 0; q < world; ++q) {
    const Slice whole = parts.slice(Region::kOutput, q);
    if (rank == last) {
      table.at(q + last).divisions.push_back(whole);
      table.at(q + last).sends.push_back({0, whole});
      continue;
    }
    const int previous = rank == 0 ? last : rank - 1;
    table.at(q + last + rank).recvs.push_back({.peer = previous, .into = whole});
    if (rank < last - 1) table.at(q + last + rank + 1).sends.push_back({rank + 1, whole});
  }
  return {.steps = table.take()};
}

Plan chain_reduce_scatter(int rank, const Partition& parts) {
  if (parts.parts() == 1) return alone(parts.total());
  return chain_to_owners(
      rank, parts, [](int q) { return q; },
      [&](int q) {
        return Slice{Region::kOutput, 0, parts.count(q)};
      });
}

Plan chain_reduce(int rank, int world, std::size_t count, int root) {
  if (world == 1) return alone(count);
  const Partition parts = Partition::even(world, count);
  return chain_to_owners(
      rank, parts, [&](int) { return root; },
      [&](int q) { return parts.slice(Region::kOutput, q); });
}

}  // namespace dlaunch
