#include "launcher/options/placement_options.h"

#include "launcher/options/option_group.h"
#include "launcher/options/values.h"

namespace dlaunch {
namespace {

PlacementOptions::Bind parse_bind(const std::string& text) {
  if (text == "none") return PlacementOptions::Bind::kNone;
  if (text == "core") return PlacementOptions::Bind::kCore;
  throw BadValue("'" + text + "' is not one of none, core");
}

}  // namespace

void add_placement_options(CLI::App& app, PlacementOptions& options) {
  const OptionGroup group(app, "Placement");
  group.add("--bind", "WHAT", "core: each rank to its share of the cores (default); none",
            [&](const std::string& text) { options.bind = parse_bind(text); });
}

}  // namespace dlaunch
