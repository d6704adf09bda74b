// What the user asked of the ranks' places: cores and devices.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace dlaunch {

struct PlacementOptions {
  enum class Bind { kNone, kCore, kNode };
  Bind bind = Bind::kCore;        // where there are enough of them
  int gpus_per_rank = 0;          // 0: every rank sees all
  std::vector<std::string> gpus;  // that ranks may be given
};

void add_placement_options(CLI::App& app, PlacementOptions& options);

}  // namespace dlaunch
