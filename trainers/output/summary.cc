#include "trainers/output/summary.h"

#include <array>
#include <cstdint>

#include <spdlog/fmt/fmt.h>

#include "trainers/output/progress.h"

namespace dlaunch {
namespace {

/// A run that has ended within an epoch has a fraction of it.
std::string format_length(const Summary& summary) {
  const std::string steps = fmt::format("{} step{}", summary.steps, summary.steps == 1 ? "" : "s");
  if (summary.steps == summary.epochs * summary.steps_per_epoch)
    return fmt::format("{} epoch{}, {}", summary.epochs, summary.epochs == 1 ? "" : "s", steps);
  return fmt::format(
      "{} ({:.3g} epochs)", steps,
      static_cast<double>(summary.steps) / static_cast<double>(summary.steps_per_epoch));
}

}  // namespace

void reduce_summary(Communicator& world, Summary& summary) {
  std::array<double, 7> figures{summary.train_seconds,
                                summary.total_seconds,
                                summary.communication_seconds,
                                static_cast<double>(summary.peak_resident_bytes),
                                static_cast<double>(summary.peak_tensor_bytes),
                                summary.first_step_seconds.value_or(0),
                                summary.prepare_seconds};
  throw_if_error(world.all_reduce(figures, ReduceOp::kMax).within("summary"));
  summary.train_seconds = figures[0];
  summary.total_seconds = figures[1];
  summary.communication_seconds = figures[2];
  summary.peak_resident_bytes = static_cast<std::size_t>(figures[3]);
  summary.peak_tensor_bytes = static_cast<std::size_t>(figures[4]);
  if (summary.first_step_seconds) summary.first_step_seconds = figures[5];
  summary.prepare_seconds = figures[6];
}

std::string format_summary(const Summary& summary) {
  const ValidationSums& validation = summary.validation;
  std::string text = fmt::format("{}, {:.0f} images in {} on {} rank{}\n", format_length(summary),
                                 summary.images, format_duration(summary.total_seconds),
                                 summary.ranks, summary.ranks == 1 ? "" : "s");
  text += fmt::format(
      "  accuracy       top-1 {:.4f}, top-5 {:.4f}, loss {:.3f} on {:.0f} images; "
      "best top-1 {:.4f} in epoch {}\n",
      validation.mean_top1(), validation.mean_top5(), validation.mean_loss(), validation.samples,
      summary.best_top1, summary.best_epoch);
  text += fmt::format("  training       loss {:.3f}, {:.0f} images/s", summary.last_train_loss,
                      summary.images_per_second());
  if (summary.first_step_seconds)
    text += fmt::format(", first step done {:.2f} s after the start", *summary.first_step_seconds);
  if (summary.prepare_seconds > 0)
    text += fmt::format(", {:.2f} s of it for preparing steps", summary.prepare_seconds);
  if (summary.use.steps > 0) text += "\n" + format_use(summary.use);
  return text;
}

nlohmann::ordered_json summary_to_json(const Summary& summary) {
  return {{"event", "summary"},
          {"ranks", summary.ranks},
          {"epochs", summary.epochs},
          {"steps", summary.steps},
          {"repeated_steps", summary.repeated_steps},
          {"why_not_repeated", summary.why_not_repeated.empty()
                                   ? nlohmann::ordered_json()
                                   : nlohmann::ordered_json(summary.why_not_repeated)},
          {"images", static_cast<std::uint64_t>(summary.images)},
          {"top1", summary.validation.mean_top1()},
          {"top5", summary.validation.mean_top5()},
          {"validation_loss", summary.validation.mean_loss()},
          {"validation_images", static_cast<std::uint64_t>(summary.validation.samples)},
          {"best_top1", summary.best_top1},
          {"best_epoch", summary.best_epoch},
          {"train_loss", summary.last_train_loss},
          {"images_per_second", summary.images_per_second()},
          {"first_step_seconds", summary.first_step_seconds
                                     ? nlohmann::ordered_json(*summary.first_step_seconds)
                                     : nlohmann::ordered_json()},
          {"prepare_seconds", summary.prepare_seconds},
          {"train_seconds", summary.train_seconds},
          {"total_seconds", summary.total_seconds},
          {"communication_seconds", summary.communication_seconds},
          {"peak_resident_bytes", summary.peak_resident_bytes},
          {"peak_tensor_bytes", summary.peak_tensor_bytes},
          {"use", use_to_json(summary.use)}};
}

}  // namespace dlaunch
