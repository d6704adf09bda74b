#include "launcher/options/placement_options.h"

#include "launcher/options/option_group.h"
#include "launcher/options/values.h"

namespace dlaunch {
namespace {

PlacementOptions::Bind parse_bind(const std::string& text) {
  if (text == "none") return PlacementOptions::Bind::kNone;
  if (text == "core") return PlacementOptions::Bind::kCore;
  if (text == "numa") return PlacementOptions::Bind::kNode;
  throw BadValue("'" + text + "' is not one of none, core and numa");
}

int parse_gpus(const std::string& text) {
  const auto gpus = parse_integer(text, 1, 1024);
  if (!gpus) throw BadValue("'" + text + "' is not a number of GPUs");
  return *gpus;
}

}  // namespace

void add_placement_options(CLI::App& app, PlacementOptions& options) {
  const OptionGroup group(app, "Placement");
  group.add("--bind", "core|numa|none", "Each rank to its share of cores (default) or nodes",
            [&](const std::string& text) { options.bind = parse_bind(text); });
  group.add("--gpus-per-rank", "N", "N GPUs for each rank in CUDA_VISIBLE_DEVICES",
            [&](const std::string& text) { options.gpus_per_rank = parse_gpus(text); });
}

}  // namespace dlaunch
