// The arithmetic of Communicator::split. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/comm/endpoint_communicator.h"

namespace dlaunch {

/// What every rank passed to split().
struct ColorAndKey {
  std::int64_t color = 0;
  std::int64_t key = 0;
};

/// The ranks of one color, ordered by (key, rank). `all` is by rank.
std::vector<int> ranks_of_color(std::span<const ColorAndKey> all, std::int64_t color);

/// A factory that takes members as ranks of a part of the world, `part` being its ranks there.
LaneFactory within_part(LaneFactory of_world, std::vector<int> part);

}  // namespace dlaunch
