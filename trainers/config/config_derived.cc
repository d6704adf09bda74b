// What follows from a configuration.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "runtime/base/json_reader.h"
#include "trainers/config/config.h"

namespace dlaunch {
namespace {

/// What training leaves.
struct Files {
  std::vector<std::string> inside;  // the output folder
  std::vector<std::string> elsewhere;
};

Files files_of(const TrainConfig& config, const LostFiles& lost = {}) {
  Files files;
  const auto add = [&](const std::string& name) {
    if (name.empty() || lost.contains(name)) return;
    const bool absolute = std::filesystem::path(name).is_absolute();
    (absolute ? files.elsewhere : files.inside).push_back(name);
  };
  add(config.metrics_file);
  add(config.tensorboard);
  if (config.checkpoint.enabled()) add(kCheckpointFolder);
  if (config.checkpoint.final_network) add(kModelFile);
  if (config.checkpoint.keep_best) add(kBestFile);
  // In the working directory.
  const std::string& trace = config.trace.file;
  if (!trace.empty() && !lost.contains(trace)) files.elsewhere.push_back(trace);
  return files;
}

}  // namespace

std::string TrainConfig::output_path(const std::string& name) const {
  return (std::filesystem::path(output_directory) / name).string();
}

std::string TrainConfig::describe_files(const LostFiles& lost) const {
  auto [inside, elsewhere] = files_of(*this, lost);
  if (!inside.empty())
    elsewhere.insert(elsewhere.begin(),
                     fmt::format("{}: {}", output_directory, fmt::join(inside, ", ")));
  return fmt::format("{}", fmt::join(elsewhere, "; "));
}

bool TrainConfig::writes_output() const {
  return !files_of(*this).inside.empty();
}

std::size_t TrainConfig::samples_per_step(std::size_t ranks) const {
  const std::size_t parts = ranks * accumulation_steps;
  if (global_batch_size == 0) return batch_size_per_rank * parts;
  if (global_batch_size < parts)
    throw ConfigError(
        fmt::format("train.global_batch_size: {} is less than {} ranks with {} "
                    "accumulation steps need; allowed: at least {}",
                    global_batch_size, ranks, accumulation_steps, parts));
  return global_batch_size;
}

nn::Schedule TrainConfig::learning_rate() const {
  const double rate = schedule.learning_rate;
  nn::Schedule result = nn::constant_schedule(rate);
  if (schedule.name == "multi_step")
    result = nn::multi_step_schedule(rate, schedule.milestones, schedule.gamma);
  const auto end = static_cast<double>(epochs);
  if (schedule.name == "cosine" && schedule.warmup_epochs < end)  // else it ends before it begins
    result = nn::cosine_schedule(rate, schedule.warmup_epochs, end, rate * schedule.final_factor);
  if (schedule.name == "piecewise_linear") {
    std::vector<nn::SchedulePoint> points;
    for (std::size_t i = 0; i < schedule.point_epochs.size(); ++i)
      points.push_back({schedule.point_epochs[i], rate * schedule.point_factors[i]});
    result = nn::piecewise_linear_schedule(std::move(points));
  }
  if (schedule.warmup_epochs > 0)
    result = nn::with_linear_warmup(std::move(result), schedule.warmup_epochs,
                                    schedule.warmup_start_factor);
  return result;
}

/// Short trials cut schedules off, so this is no error.
std::string TrainConfig::schedule_remark() const {
  const auto end = static_cast<double>(epochs);
  if (schedule.warmup_epochs >= end)
    return fmt::format("schedule.warmup_epochs {} covers all of train.epochs {}: {}",
                       schedule.warmup_epochs, epochs,
                       schedule.name == "cosine"
                           ? "the cosine never begins"
                           : "the learning rate never reaches its full value");
  const auto beyond = [&](const char* key, const std::vector<double>& all, const auto& is_beyond) {
    std::vector<double> found;
    std::ranges::copy_if(all, std::back_inserter(found), is_beyond);
    if (found.empty()) return std::string();
    return fmt::format("{} {}: not reached in train.epochs {}", key, fmt::join(found, ", "),
                       epochs);
  };
  // What happens at the very end has no step left to change.
  if (schedule.name == "multi_step")
    return beyond("schedule.milestones", schedule.milestones,
                  [&](double milestone) { return milestone >= end; });
  if (schedule.name == "piecewise_linear")
    return beyond("schedule.point_epochs", schedule.point_epochs,
                  [&](double point) { return point > end; });
  return "";
}

nn::Schedule TrainConfig::stem_learning_rate() const {
  if (schedule.stem_epochs == 0) return learning_rate();
  return nn::piecewise_linear_schedule({{0, schedule.learning_rate}, {schedule.stem_epochs, 0}});
}

}  // namespace dlaunch
