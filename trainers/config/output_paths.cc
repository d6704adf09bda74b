#include "trainers/config/output_paths.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

/// Without links, also of what is not there yet; empty: nothing that could be lost, a device or a
/// pipe.
fs::path place_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) return {};
  fs::path whole = fs::absolute(path, error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "checkpoints/"
  const fs::path resolved = fs::weakly_canonical(whole, error);
  return error ? whole : resolved;
}

}  // namespace

void refuse_shared_paths(const JsonObject& output, const TrainConfig& config,
                         const std::string& config_file) {
  std::vector<std::pair<std::string, fs::path>> taken;
  const auto take = [&](const std::string& name, const std::string& path) {
    if (!path.empty()) taken.emplace_back(name, place_of(path));
  };
  take("the configuration", config_file);
  take("model.weights", config.weights);
  take("the checkpoint that is resumed", config.checkpoint.path);
  take("the name of the network at the end", config.output_path(kModelFile));
  take("the name of the best network", config.output_path(kBestFile));
  take("the folder of checkpoints", config.output_path(kCheckpointFolder));
  const auto choose = [&](const char* key, const std::string& name, const std::string& path) {
    if (name.empty()) return;
    const fs::path place = place_of(path);
    const auto same = std::ranges::find_if(
        taken, [&](const auto& other) { return !place.empty() && other.second == place; });
    if (same != taken.end())
      output.refuse(key, fmt::format("{} is {} too; name another one", path, same->first));
    taken.emplace_back(fmt::format("output.{}", key), place);
  };
  choose("metrics", config.metrics_file, config.output_path(config.metrics_file));
  choose("tensorboard", config.tensorboard, config.output_path(config.tensorboard));
  choose("trace", config.trace.file, config.trace.file);
}

}  // namespace dlaunch
