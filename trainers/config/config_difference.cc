#include "trainers/config/config_difference.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>

namespace dlaunch {
namespace {

using Json = nlohmann::ordered_json;

void erase_keys(Json& config, std::span<const std::pair<const char*, const char*>> keys) {
  for (const auto& [section, key] : keys) config[section].erase(key);
}

}  // namespace

std::string ConfigDifference::text(const Json& value) {
  return value.is_null() ? "not set" : value.dump();
}

std::vector<ConfigDifference> config_differences(const Json& here, const Json& there,
                                                 const std::string& path) {
  if (here == there) return {};
  if (!here.is_object() || !there.is_object()) return {{path, here, there}};
  const std::string begin = path.empty() ? "" : path + ".";
  std::vector<ConfigDifference> all;
  const auto add = [&](const std::string& key) {
    std::ranges::move(
        config_differences(here.value(key, Json()), there.value(key, Json()), begin + key),
        std::back_inserter(all));
  };
  for (const auto& item : here.items()) add(item.key());
  for (const auto& item : there.items())
    if (!here.contains(item.key())) add(item.key());
  return all;
}

Json common_part(Json resolved) {
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
  erase_keys(resolved, kOwn);
  Json& trace = resolved["output"]["trace"];  // made by all ranks or by none, under any name
  if (!trace.get<std::string>().empty()) trace = "FILE";
  return resolved;
}

Json training_part(Json resolved) {
  Json part = common_part(std::move(resolved));
  constexpr std::array<std::pair<const char*, const char*>, 3> kBothEnds{
      {{"train", "max_steps"}, {"train", "max_seconds"}, {"model", "new_classifier"}}};
  erase_keys(part, kBothEnds);
  part.erase("checkpoint");
  part.erase("output");
  return part;
}

}  // namespace dlaunch
