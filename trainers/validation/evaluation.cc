#include "trainers/validation/evaluation.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <spdlog/logger.h>

#include "nn/parallel/tensor_memory.h"
#include "runtime/base/logging.h"
#include "runtime/parallel/state_broadcast.h"
#include "trainers/output/progress.h"
#include "trainers/training/datasets.h"
#include "trainers/training/failures.h"
#include "trainers/training/network_file.h"
#include "trainers/training/trainer_parts.h"

namespace dlaunch {

Evaluation::Evaluation(const TrainConfig& config, const TrainingPlace& place, const Screen& screen,
                       const Machine& machine, std::string path)
    : config_(config),
      world_(place.world),
      backend_(place.backend),
      screen_(screen),
      path_(std::move(path)),
      images_(open_dataset(config.data, nn::Split::kTest)),
      generator_(config.seed),
      model_(make_network(config, data_shape(*images_), compute_type_of(config, backend_), backend_,
                          generator_, &world_)),
      parameters_(flatten_parameters(*model_, &world_)),
      options_(affordable_validation(config, *model_, backend_,
                                     {.image = image_batch(1, images_->image_shape()),
                                      .at_most = largest_part(*images_, world_)},
                                     machine)) {
  if (world_.rank() != 0) return;
  load();
  if (!config.metrics_file.empty())
    metrics_ = MetricsFile(config.output_directory, "validation.jsonl");
}

void Evaluation::load() {
  const NetworkFile file(path_);
  for (const std::string& line : file.differences(config_, *images_))
    make_logger("validation")->warn("{}: figures are not those of that training", line);
  file.load(*model_);
}

/// Rank 0's network.
void Evaluation::share() {
  std::vector<Buffer> state{memory_of(parameters_.values)};
  for (const nn::NamedBuffer& buffer : model_->buffers())
    state.emplace_back(memory_of(buffer.tensor));
  throw_if_error(broadcast_state(world_, state).within("weights"));
}

ValidationSums Evaluation::run(const std::function<void()>& ready) {
  share();
  const ValidationShard shard =
      scatter_validation_set(world_, images_.get(), images_->image_shape());
  ready();
  const nn::ImageTransform transform(images_->image_shape(), config_.data.normalization, {});
  const auto begin = std::chrono::steady_clock::now();
  const ValidationSums sums = validate(world_, backend_, *model_, transform, shard, options_);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (world_.rank() == 0) report(sums, seconds.count());
  if (!std::isfinite(sums.loss))
    throw Divergence(
        fmt::format("{}: the loss is {}: what this network makes of the images is not finite",
                    path_, sums.mean_loss()));
  return sums;
}

void Evaluation::report(const ValidationSums& sums, double seconds) {
  Progress progress(config_.progress, screen_.out, screen_.is_terminal, screen_.columns);
  if (const std::string remark = images_->remark(); !remark.empty()) progress.line(remark);
  progress.line(
      fmt::format("{}: top-1 {:.4f}, top-5 {:.4f}, loss {:.3f} on {:.0f} images in {} on {} rank{}",
                  path_, sums.mean_top1(), sums.mean_top5(), sums.mean_loss(), sums.samples,
                  format_duration(seconds), world_.size(), world_.size() == 1 ? "" : "s"));
  metrics_.begin(true);
  metrics_.write({{"event", "validation"},
                  {"weights", path_},
                  {"model", config_.model},
                  {"ranks", world_.size()},
                  {"top1", sums.mean_top1()},
                  {"top5", sums.mean_top5()},
                  {"validation_loss", sums.mean_loss()},
                  {"validation_images", static_cast<std::uint64_t>(sums.samples)},
                  {"validation_seconds", seconds}});
  metrics_.finish();
}

}  // namespace dlaunch
