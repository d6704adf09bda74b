#include "trainers/config/config_agreement.h"

#include <array>
#include <string>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "runtime/base/json_reader.h"
#include "runtime/parallel/state_broadcast.h"

namespace dlaunch {
namespace {

using Json = nlohmann::ordered_json;

/// What all ranks must have alike.
Json common_part(Json config) {
  constexpr std::array<std::pair<const char*, const char*>, 11> kOwn{
      {{"data", "directory"},
       {"data", "prefetch"},
       {"data", "workers"},
       {"data", "on_device"},
       {"model", "weights"},
       {"checkpoint", "resume"},
       {"train", "validation_batch_size"},
       {"output", "directory"},
       {"output", "metrics"},
       {"output", "tensorboard"},
       {"output", "progress"}}};
  for (const auto& [section, key] : kOwn) config[section].erase(key);
  Json& trace = config["output"]["trace"];  // made by all ranks or by none, under any name
  if (!trace.get<std::string>().empty()) trace = "FILE";
  return config;
}

/// "optimizer.learning_rate is 0.02, on rank 0 0.01"; empty: they are the same.
std::string first_difference(const Json& here, const Json& there, const std::string& path) {
  if (here == there) return "";
  if (!here.is_object() || !there.is_object())
    return fmt::format("{} is {}, on rank 0 {}", path, here.dump(), there.dump());
  const std::string begin = path.empty() ? "" : path + ".";
  for (const auto& [key, value] : here.items())
    if (std::string text = first_difference(value, there.value(key, Json()), begin + key);
        !text.empty())
      return text;
  for (const auto& [key, value] : there.items())
    if (!here.contains(key)) return first_difference(Json(), value, begin + key);
  return "";
}

}  // namespace

void check_same_configuration(Communicator& world, const TrainConfig& config) {
  const Json here = common_part(config.resolved);
  std::string text = world.rank() == 0 ? here.dump() : "";
  throw_if_error(broadcast_text(world, text, 0).within("start"));
  const std::string difference = first_difference(here, Json::parse(text), "");
  if (!difference.empty())
    throw ConfigError(fmt::format("rank {}: {}; start all ranks with the same configuration",
                                  world.rank(), difference));
}

}  // namespace dlaunch
