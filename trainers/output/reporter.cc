#include "trainers/output/reporter.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "trainers/output/set_aside.h"

namespace dlaunch {
namespace {

/// JSON has no NaN: it is written as null.
double number_in(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

/// ", at most 120 s": what may end the run before its epochs do.
std::string limits_of(const TrainConfig& config) {
  std::string limits;
  if (config.max_steps > 0)
    limits +=
        fmt::format(", at most {} step{}", config.max_steps, config.max_steps == 1 ? "" : "s");
  if (config.max_seconds > 0) limits += fmt::format(", at most {:g} s", config.max_seconds);
  return limits;
}

}  // namespace

void Reporter::Interval::add(const StepReport& report) {
  totals.samples += report.totals.samples;
  totals.loss += report.totals.loss;
  seconds += report.times.total();
  ++steps;
  times += report.times;
}

nlohmann::json Reporter::Interval::state() const {
  return {totals.samples,
          totals.loss,
          seconds,
          steps,
          times[StepPhase::kCommunication],
          times.hidden_communication};
}

/// Of the times, those that lines tell.
void Reporter::Interval::restore(const nlohmann::json& state) {
  totals = {.samples = state.at(0), .loss = state.at(1)};
  seconds = state.at(2);
  steps = state.at(3);
  times[StepPhase::kCommunication] = state.at(4);
  times.hidden_communication = state.at(5);
}

Reporter::Reporter(const TrainConfig& config, const Screen& screen, bool enabled, bool resumes)
    : config_(config),
      leads_(enabled),
      resumes_(resumes),
      progress_(enabled ? config.progress : ProgressStyle::kNone, screen.out, screen.is_terminal,
                screen.columns) {
  if (enabled && !config.metrics_file.empty())
    metrics_ = MetricsFile(config.output_directory, config.metrics_file);
  if (enabled && !config.tensorboard.empty())
    events_ = EventFile(config.output_path(config.tensorboard));
}

/// Nothing of what an earlier run has left here is lost at once.
void Reporter::begin_files() {
  std::vector<std::string> names{metrics_.begin(resumes_)};
  if (leads_ && !resumes_ && config_.writes_output()) {
    for (const char* file : {kBestFile, kModelFile}) {
      const std::string path = config_.output_path(file);
      std::error_code none;
      // A restart of the job is to find the weights that it begins with.
      const bool begins_with_it = std::filesystem::equivalent(path, config_.weights, none);
      names.push_back(set_aside(path, begins_with_it));
    }
  }
  std::erase(names, "");
  if (!names.empty())
    progress_.line(fmt::format("set aside from an earlier run: {}", fmt::join(names, ", ")));
}

void Reporter::start(std::size_t ranks, const nn::StepPlan& plan, std::size_t training_images,
                     std::size_t parameters, const std::string& compute_type) {
  summary_.ranks = ranks;
  summary_.steps_per_epoch = plan.steps();
  begin_files();
  started_ = true;
  if (!resumes_) events_.restart_at(1);  // what an earlier run wrote there is void
  metrics_.write({{"event", "start"},
                  {"ranks", ranks},
                  {"training_images", training_images},
                  {"parameters", parameters},
                  {"compute_type", compute_type},
                  {"config", config_.resolved}});
  const std::size_t samples = plan.step_range(0).size();
  progress_.line(fmt::format(
      "{} with {} parameters on {} training images, {} rank{}, {} samples a step{}, {} epoch{}{}",
      config_.model, parameters, training_images, ranks, ranks == 1 ? "" : "s", samples,
      samples < config_.samples_per_step(ranks) ? " (all there are)" : "", config_.epochs,
      config_.epochs == 1 ? "" : "s", limits_of(config_)));
}

nlohmann::json Reporter::state() const {
  const ValidationSums& last = summary_.validation;
  return {{"epochs", summary_.epochs},
          {"steps", summary_.steps},
          {"images", summary_.images},
          {"train_seconds", summary_.train_seconds},
          {"last_train_loss", summary_.last_train_loss},
          {"best_top1", summary_.best_top1},
          {"best_epoch", summary_.best_epoch},
          {"validation", {last.samples, last.top1, last.top5, last.loss}},
          {"validated_steps", summary_.validated_steps},
          {"total_seconds", summary_.total_seconds},
          {"communication_seconds", summary_.communication_seconds},
          {"epoch", epoch_.state()},
          {"line", since_metrics_.state()}};
}

void Reporter::restore(const nlohmann::json& state) {
  summary_.epochs = state.at("epochs");
  summary_.steps = state.at("steps");
  summary_.images = state.at("images");
  summary_.train_seconds = state.at("train_seconds");
  summary_.last_train_loss = state.at("last_train_loss");
  summary_.best_top1 = state.at("best_top1");
  summary_.best_epoch = state.at("best_epoch");
  const auto& last = state.at("validation");
  summary_.validation = {last.at(0), last.at(1), last.at(2), number_in(last.at(3))};
  summary_.validated_steps = state.at("validated_steps");
  summary_.total_seconds = state.at("total_seconds");
  summary_.communication_seconds = state.at("communication_seconds");
  epoch_.restore(state.at("epoch"));
  since_metrics_.restore(state.at("line"));
  events_.restart_at(summary_.steps + 1);
  metrics_.write({{"event", "resume"}, {"step", summary_.steps}});
  progress_.line(fmt::format("resuming after step {}", summary_.steps));
}

void Reporter::set_best(double top1, std::size_t epoch) {
  summary_.best_top1 = top1;
  summary_.best_epoch = epoch;
}

void Reporter::note(const std::string& text) {
  if (!text.empty()) progress_.line(text);
}

void Reporter::warn(const std::string& text) {
  if (!text.empty()) progress_.line("warning: " + text);
}

void Reporter::step(const StepReport& report) {
  learning_rate_ = report.learning_rate;
  summary_.epochs = report.epoch + 1;
  ++summary_.steps;
  summary_.images += report.totals.samples;
  summary_.train_seconds += report.times.total();
  for (Interval* interval : {&epoch_, &since_metrics_, &since_progress_}) interval->add(report);

  if (summary_.steps % config_.log_every == 0) {
    write_step(report);
    since_metrics_ = {};
  }
  const auto now = Progress::Clock::now();
  if (report.loss_known && progress_.due(now)) {
    progress_.show({.epoch = report.epoch,
                    .epochs = config_.epochs,
                    .step = report.step + 1,
                    .steps = summary_.steps_per_epoch,
                    .loss = since_progress_.mean_loss(),
                    .images_per_second = since_progress_.images_per_second(),
                    .seconds_left = seconds_left(report)},
                   now);
    since_progress_ = {};
  }
}

/// What there is to say about the steps since the last line.
void Reporter::write_step(const StepReport& report) {
  const Interval& interval = since_metrics_;
  const auto steps = static_cast<double>(interval.steps);
  const double exposed = interval.times[StepPhase::kCommunication] / steps;
  const double hidden = interval.times.hidden_communication / steps;
  nlohmann::ordered_json line = {{"event", "step"},
                                 {"epoch", report.epoch + 1},
                                 {"step", summary_.steps},
                                 {"loss", interval.mean_loss()},
                                 {"learning_rate", report.learning_rate},
                                 {"images_per_second", interval.images_per_second()},
                                 {"gradient_norm", report.gradient_norm},
                                 {"exposed_communication_seconds", exposed},
                                 {"hidden_communication_seconds", hidden}};
  if (report.loss_scale)
    line.update({{"loss_scale", report.loss_scale->scale},
                 {"skipped_steps", static_cast<std::uint64_t>(report.loss_scale->skipped_steps)}});
  metrics_.write(line);
  if (report.loss_scale)
    events_.write(summary_.steps,
                  std::array{Scalar{"train/loss_scale", report.loss_scale->scale},
                             Scalar{"train/skipped_steps", report.loss_scale->skipped_steps}});
  events_.write(summary_.steps,
                std::array{Scalar{"train/loss", interval.mean_loss()},
                           Scalar{"train/learning_rate", report.learning_rate},
                           Scalar{"train/images_per_second", interval.images_per_second()},
                           Scalar{"train/gradient_norm", report.gradient_norm},
                           Scalar{"time/step_seconds", interval.seconds / steps},
                           Scalar{"time/exposed_communication_seconds", exposed},
                           Scalar{"time/hidden_communication_seconds", hidden}});
}

void Reporter::unused(const std::vector<UnusedParameter>& parameters) {
  constexpr std::size_t kNamed = 8;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::string names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    list.push_back({{"rank", parameters[i].rank}, {"name", parameters[i].name}});
    if (i < kNamed)
      names +=
          fmt::format("{}{} (rank {})", i > 0 ? ", " : "", parameters[i].name, parameters[i].rank);
  }
  if (parameters.size() > kNamed) names += fmt::format(", {} more", parameters.size() - kNamed);
  metrics_.write({{"event", "unused_parameters"}, {"step", summary_.steps + 1}, {"list", list}});
  progress_.line(parameters.empty()
                     ? "every parameter is used again"
                     : "the loss does not depend on " + names + ": their gradients count as zero");
}

double Reporter::seconds_left(const StepReport& report) const {
  const double per_step = summary_.train_seconds / static_cast<double>(summary_.steps);
  const std::size_t epochs = config_.epochs - report.epoch - 1;  // after this one
  std::size_t steps =
      epochs * summary_.steps_per_epoch + summary_.steps_per_epoch - report.step - 1;
  if (config_.max_steps > 0)
    steps = std::min(steps, config_.max_steps - std::min(config_.max_steps, summary_.steps));
  const std::size_t validations =
      config_.validate_every > 0 ? epochs / config_.validate_every + 1 : 1;
  const double left = per_step * static_cast<double>(steps) +
                      validation_seconds_ * static_cast<double>(validations);
  if (config_.max_seconds <= 0) return left;
  return std::min(left, std::max(0.0, config_.max_seconds - report.seconds_since_start));
}

void Reporter::epoch(std::size_t epoch, const std::optional<ValidationSums>& validation,
                     double validation_seconds) {
  const Interval done = std::exchange(epoch_, {});
  summary_.last_train_loss = done.mean_loss();
  write_epoch({{"event", "epoch"},
               {"epoch", epoch + 1},
               {"step", summary_.steps},
               {"loss", done.mean_loss()},
               {"learning_rate", learning_rate_},
               {"seconds", done.seconds},
               {"images_per_second", done.images_per_second()}},
              fmt::format("epoch {}/{}: loss {:.3f}  {:.0f} images/s", epoch + 1, config_.epochs,
                          done.mean_loss(), done.images_per_second()),
              validation, true, validation_seconds);
}

void Reporter::stopped(const ValidationSums& validation, bool may_be_best,
                       double validation_seconds) {
  if (epoch_.totals.samples > 0) summary_.last_train_loss = epoch_.mean_loss();
  write_epoch({{"event", "stop"},
               {"epoch", summary_.epochs},
               {"step", summary_.steps},
               {"loss", summary_.last_train_loss}},
              fmt::format("stopped in epoch {}/{} after step {}: loss {:.3f}", summary_.epochs,
                          config_.epochs, summary_.steps, summary_.last_train_loss),
              validation, may_be_best, validation_seconds);
}

void Reporter::interrupted(const std::string& signal) {
  if (epoch_.totals.samples > 0) summary_.last_train_loss = epoch_.mean_loss();
  metrics_.write({{"event", "stop"},
                  {"epoch", summary_.epochs},
                  {"step", summary_.steps},
                  {"loss", summary_.last_train_loss},
                  {"signal", signal}});
}

void Reporter::failed(const std::string& line, int code) {
  if (started_)
    metrics_.write(
        {{"event", "failed"}, {"step", summary_.steps}, {"exit_code", code}, {"line", line}});
}

/// With the validation after it, if there was one.
void Reporter::write_epoch(nlohmann::ordered_json line, std::string text,
                           const std::optional<ValidationSums>& validation, bool may_be_best,
                           double validation_seconds) {
  if (validation) {
    validation_seconds_ = validation_seconds;
    if (may_be_best && summary_.is_best(*validation)) {
      summary_.best_top1 = validation->mean_top1();
      summary_.best_epoch = summary_.epochs;
    }
    summary_.validation = *validation;
    summary_.validated_steps = summary_.steps;
    line.update({{"top1", validation->mean_top1()},
                 {"top5", validation->mean_top5()},
                 {"validation_loss", validation->mean_loss()},
                 {"validation_images", static_cast<std::uint64_t>(validation->samples)},
                 {"validation_seconds", validation_seconds}});
    events_.write(summary_.steps, std::array{Scalar{"validation/top1", validation->mean_top1()},
                                             Scalar{"validation/top5", validation->mean_top5()},
                                             Scalar{"validation/loss", validation->mean_loss()}});
    text += fmt::format("  top-1 {:.4f}  top-5 {:.4f}  validation loss {:.3f}",
                        validation->mean_top1(), validation->mean_top5(), validation->mean_loss());
  }
  metrics_.write(line);
  progress_.line(text);
}

void Reporter::finish() {
  metrics_.write(summary_to_json(summary_));
  progress_.line(format_summary(summary_));
}

void Reporter::close(LostFiles& lost) {
  lost.try_to_write(config_.metrics_file, [&] { metrics_.finish(); });
  lost.try_to_write(config_.tensorboard, [&] { events_.finish(); });
}

void Reporter::list_files(const LostFiles& lost) {
  if (const std::string files = config_.describe_files(lost); !files.empty())
    progress_.line("  files          " + files);
}

}  // namespace dlaunch
