#include "runtime/comm/split.h"

#include <algorithm>
#include <string>
#include <utility>

namespace dlaunch {

std::vector<int> ranks_of_color(std::span<const ColorAndKey> all, std::int64_t color) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].color == color) ranks.push_back(static_cast<int>(i));
  }
  std::ranges::stable_sort(ranks, {},
                           [&](int rank) { return all[static_cast<std::size_t>(rank)].key; });
  return ranks;
}

LaneFactory within_part(LaneFactory of_world, std::vector<int> part) {
  return [of_world = std::move(of_world), part = std::move(part)](const LaneRequest& request) {
    std::vector<int> of_the_world;
    of_the_world.reserve(request.members.size());
    for (const int member : request.members) {
      of_the_world.push_back(part[static_cast<std::size_t>(member)]);
    }
    LaneRequest translated = request;
    translated.members = of_the_world;
    return of_world(translated);
  };
}

}  // namespace dlaunch
