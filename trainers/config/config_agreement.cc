#include "trainers/config/config_agreement.h"

#include <string>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "runtime/base/json_reader.h"
#include "runtime/comm/objects.h"
#include "trainers/config/config_difference.h"

namespace dlaunch {

void check_same_configuration(Communicator& world, const TrainConfig& config) {
  const nlohmann::ordered_json here = common_part(config.resolved);
  std::string text = world.rank() == 0 ? here.dump() : "";
  throw_if_error(broadcast_bytes(world, text, 0).within("start"));
  const auto differences = config_differences(here, nlohmann::ordered_json::parse(text));
  if (differences.empty()) return;
  const ConfigDifference& first = differences.front();
  throw ConfigError(fmt::format(
      "rank {}: {} is {}, on rank 0 {}; start all ranks with the same configuration", world.rank(),
      first.key, ConfigDifference::text(first.here), ConfigDifference::text(first.there)));
}

}  // namespace dlaunch
