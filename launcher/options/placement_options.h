// What the user asked of the ranks' places: cores and devices.
#pragma once

namespace CLI {
class App;
}

namespace dlaunch {

struct PlacementOptions {
  enum class Bind { kNone, kCore };
  Bind bind = Bind::kCore;  // where there are enough of them
};

void add_placement_options(CLI::App& app, PlacementOptions& options);

}  // namespace dlaunch
