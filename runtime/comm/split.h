// The arithmetic of Communicator::split. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

/// What every rank passed to split().
struct ColorAndKey {
  std::int64_t color = 0;
  std::int64_t key = 0;
};

/// The ranks of one color, ordered by (key, rank). `all` is by rank.
std::vector<int> ranks_of_color(std::span<const ColorAndKey> all, std::int64_t color);

/// The name of the part of one color that the communicator of name `whole` makes in its split
/// number `split`: "world/1/2.0". Different for all parts of a job and, however deep they are,
/// short enough to be a part of keys and to be shown whole in hang reports: from some length on it
/// begins with a hash of `whole`.
std::string name_of_part(std::string_view whole, int split, int color);

}  // namespace dlaunch
