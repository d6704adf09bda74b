#include "runtime/collective/bruck.h"

#include <algorithm>
#include <utility>

namespace dlaunch {

Collected bruck_collect_parts(int rank, const Partition& parts) {
  const int world = parts.parts();
  // Parts lie in the scratch memory in the order rank, rank + 1, ... round the ring.
  std::vector<std::size_t> begin{0};
  for (int i = 0; i < world; ++i) {
    begin.push_back(begin.back() + parts.count((rank + i) % world));
  }
  const auto places = [&](int first, int last) {
    const std::size_t from = begin[static_cast<std::size_t>(first)];
    return Slice{Region::kScratch, from, begin[static_cast<std::size_t>(last)] - from};
  };
  Collected result{.plan = {.scratch = parts.total()}};
  std::vector<PlanStep>& steps = result.plan.steps;
  steps.push_back({.copies = {{{Region::kInput, 0, parts.count(rank)}, places(0, 1)}}});
  for (int distance = 1; distance < world; distance *= 2) {
    const int more = std::min(distance, world - distance);
    const int to = (rank + world - distance) % world;
    const int source = (rank + distance) % world;
    steps.push_back({.sends = {{to, places(0, more)}},
                     .recvs = {{.peer = source, .into = places(distance, distance + more)}}});
  }
  for (int source = 0; source < world; ++source) {
    const int place = (source + world - rank) % world;
    result.from.push_back(places(place, place + 1));
  }
  return result;
}

Plan bruck_all_gather(int rank, const Partition& parts) {
  Collected collected = bruck_collect_parts(rank, parts);
  PlanStep last;
  for (int part = 0; part < parts.parts(); ++part) {
    last.copies.push_back(
        {collected.from[static_cast<std::size_t>(part)], parts.slice(Region::kOutput, part)});
  }
  collected.plan.steps.push_back(std::move(last));
  return std::move(collected.plan);
}

Collected bruck_collect_slices(int rank, const Partition& parts) {
  const int world = parts.parts();
  // Its elements: those of the part of its destination. `i` is how far a block travels in all; once
  // it has done so for the bits of `i` below `distance`, it is i & (distance - 1) from its origin.
  const auto size = [&](int i, int distance) {
    return parts.count((rank + world - (i & (distance - 1)) + i) % world);
  };
  std::vector<Slice> blocks;  // the block here that travels i ranks in all
  blocks.reserve(static_cast<std::size_t>(world));
  for (int i = 0; i < world; ++i) {
    blocks.push_back(parts.slice(Region::kInput, (rank + i) % world));
  }
  // Blocks to be sent are packed at the beginning of the scratch memory; received ones stay where
  // they came in until it is their turn.
  Collected result;
  std::size_t received = 0;
  for (int distance = 1; distance < world; distance *= 2) {
    std::size_t packed = 0;
    for (int i = distance; i < world; ++i) packed += (i & distance) != 0 ? size(i, distance) : 0;
    received = std::max(received, packed);
  }
  for (int distance = 1; distance < world; distance *= 2) {
    PlanStep step;
    Slice outgoing{Region::kScratch, 0, 0};
    const std::size_t begin = received;
    for (int i = distance; i < world; ++i) {
      if ((i & distance) == 0) continue;
      Slice& block = blocks[static_cast<std::size_t>(i)];
      step.copies.push_back({block, {Region::kScratch, outgoing.count, block.count}});
      outgoing.count += block.count;
      block = {Region::kScratch, received, size(i, 2 * distance)};
      received += block.count;
    }
    step.sends = {{(rank + distance) % world, outgoing}};
    step.recvs = {{.peer = (rank + world - distance) % world,
                   .into = {Region::kScratch, begin, received - begin}}};
    result.plan.steps.push_back(std::move(step));
  }
  result.plan.scratch = received;
  for (int source = 0; source < world; ++source) {
    result.from.push_back(blocks[static_cast<std::size_t>((rank + world - source) % world)]);
  }
  return result;
}

Plan bruck_all_to_all(int rank, int world, std::size_t each) {
  const Partition parts = Partition::equal(world, each);
  Collected collected = bruck_collect_slices(rank, parts);
  PlanStep last;
  for (int source = 0; source < world; ++source) {
    last.copies.push_back(
        {collected.from[static_cast<std::size_t>(source)], parts.slice(Region::kOutput, source)});
  }
  collected.plan.steps.push_back(std::move(last));
  return std::move(collected.plan);
}

}  // namespace dlaunch
