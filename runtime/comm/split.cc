#include "runtime/comm/split.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

#include "runtime/base/activity_layout.h"
#include "runtime/base/hash_text.h"

namespace dlaunch {
namespace {

// What dlaunch is told of a name.
constexpr std::size_t kLongestName = ActivitySlot::kNameWords * sizeof(std::uint64_t);

}  // namespace

std::vector<int> ranks_of_color(std::span<const ColorAndKey> all, std::int64_t color) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].color == color) ranks.push_back(static_cast<int>(i));
  }
  std::ranges::stable_sort(ranks, {},
                           [&](int rank) { return all[static_cast<std::size_t>(rank)].key; });
  return ranks;
}

std::string name_of_part(std::string_view whole, int split, int color) {
  const std::string last = "/" + std::to_string(split) + "." + std::to_string(color);
  if (whole.size() + last.size() <= kLongestName) return std::string(whole) + last;
  std::array<char, 2 * sizeof(std::uint64_t) + 1> hash;
  std::snprintf(hash.data(), hash.size(), "%016" PRIx64, hash_text(whole));
  return "~" + std::string(hash.data()) + last;
}

}  // namespace dlaunch
