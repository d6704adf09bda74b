// The steps of a Trainer whose tensors are on a device.
#include <array>

#include "nn/core/ops.h"
#include "nn/core/optimizer_kernels.h"
#include "trainers/training/trainer.h"
#include "trainers/training/trainer_parts.h"

namespace dlaunch {

/// What keeps steps from being recorded and repeated as a whole; empty: nothing.
std::string Trainer::why_no_graphs(const TrainingPlace& place) const {
  if (!config_.trace.file.empty()) return "the trace would show no operations";
  if (config_.data.mix.kind != nn::MixKind::kNone)
    return "the share of mixed images is different in every step";
  return place.device_world == nullptr ? "" : place.device_world->why_not_recorded();
}

/// Whether the losses that are still on the device are wanted before the step after this one; the
/// same on all ranks.
bool Trainer::losses_are_due(const RunPosition& next, const StepTotals& totals) {
  return !reporter_.summary().first_step_seconds || losses_.is_full() ||
         reporter_.next_step_is_line() || next.step == 0 ||
         is_last(reporter_.summary().steps + 1) || totals.stop_votes > 0 ||
         checkpointing_.is_due(next, false);
}

/// Puts the losses of the steps up to this one into its totals.
void Trainer::take_losses(StepTotals& totals, std::size_t epoch, std::size_t step) {
  const std::vector<double> losses = losses_.take();
  for (std::size_t i = 0; i < losses.size(); ++i) {
    check_late_loss(losses[i], epoch, step + 1 + i - losses.size(), step);
    totals.loss += losses[i];
  }
  if (!loss_scaler_) return;
  loss_scale_ = loss_scaler_->read();
  check_loss_scale(epoch, step);
}

/// The host waits for no work of the device. Totals are exchanged first, so that all that kernels
/// have to know of the step is in the device's memory before they begin.
StepTotals Trainer::train_step_on_device(std::size_t micro_batches, double progress) {
  const std::vector<DeviceBatch>& batches =
      batches_.load(micro_batches, [this]() -> const nn::MicroBatch& { return next_batch(); });
  StepTotals totals =
      reducer_->exchange_totals({.samples = samples_of(batches), .stop_votes = stop_vote()})
          .value_or_throw();
  if (run_on_device(batches, totals, progress)) ++reporter_.summary().repeated_steps;
  losses_.end_step();
  if (measures_gradients_ && !clipper_)
    for (const FlatSpan span : reducer_->updated_here())
      gradient_squares_ += backend_.optimizer().sum_of_squares(
          static_cast<std::int64_t>(span.size()),
          parameters_.gradients.data<const float>() + span.begin);
  return totals;
}

/// From what its totals say to new parameters. True if it was repeated.
bool Trainer::run_on_device(const std::vector<DeviceBatch>& batches, const StepTotals& totals,
                            double progress) {
  optimizer_.begin_step(learning_rate_(progress), stem_learning_rate_(progress));
  step_scale_.set_values<float>(
      std::array{totals.samples > 0 ? static_cast<float>(1 / totals.samples) : 0.0F});
  if (loss_scaler_) loss_scaler_->prepare(totals.samples, batches.size());
  // As if written to already: repeated kernels tell nobody who has kept something of the values,
  // and those that are recorded must not rely on it.
  (void)parameters_.values.data<float>();
  const auto give_up = [&](const std::string& why) {
    reporter_.summary().why_not_repeated = why;
    reporter_.warn("steps are not recorded as CUDA graphs: " + why);
    (void)reducer_->exchange_totals(totals).value_or_throw();  // one rank's, which it may have used
  };
  const bool repeated = graphs_->run(
      {static_cast<std::size_t>(totals.samples), sides_of(batches)},
      [&] { work_on_device(batches); }, give_up);
  if (repeated) throw_if_error(reducer_->finish_repeated());
  return repeated;
}

/// Kernels and collectives of a whole step.
void Trainer::work_on_device(const std::vector<DeviceBatch>& batches) {
  parameters_.zero_gradients();
  losses_.begin_step();
  const nn::Tensor loss_gradient = loss_scaler_ ? loss_scaler_->begin_step() : nn::Tensor();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    std::optional<Observation::Section> section(std::in_place, observation_, StepPhase::kForward);
    const nn::Tensor loss = loss_of(batches[i]);
    losses_.add(loss);
    reducer_->begin(i + 1 == batches.size(), {});
    section.emplace(observation_, StepPhase::kBackward);
    run_backward(loss, loss_gradient);
  }
  throw_if_error(finish_gradients());
}

nn::Tensor Trainer::loss_of(const DeviceBatch& batch) {
  const nn::Tensor scores = (*model_)(batch.images);
  const nn::CrossEntropyOptions options{.label_smoothing = config_.label_smoothing,
                                        .reduction = nn::Reduction::kSum};
  if (batch.partner_labels.empty()) return cross_entropy(scores, batch.labels, options);
  return mixed_cross_entropy(scores, batch.own_labels, batch.partner_labels, batch.own_share,
                             options);
}

/// Where, from `from` on, the sizes of images begin that are trained on. Not the last step of an
/// epoch, which may have fewer images.
std::vector<RunPosition> Trainer::first_of_sizes(const RunPosition& from) const {
  const double begin = plan_.progress(from.epoch, from.step);
  std::vector<double> places{begin};
  for (const nn::ResizeStage& stage : config_.data.resize)
    if (stage.until_epochs > begin && stage.until_epochs < static_cast<double>(config_.epochs))
      places.push_back(stage.until_epochs);
  std::vector<RunPosition> positions;
  for (const double place : places) {
    RunPosition at{.steps_done = 0, .epoch = static_cast<std::size_t>(place), .step = 0};
    while (at.step < plan_.steps() && plan_.progress(at.epoch, at.step) < place) ++at.step;
    if (at.step > 0 && at.step + 1 >= plan_.steps()) at = {0, at.epoch + 1, 0};
    if (at.epoch < config_.epochs) positions.push_back(at);
  }
  return positions;
}

/// Collective. Does some steps of every size and records one, so that libraries are loaded,
/// algorithms chosen and memory is taken before the time of training begins. Then all is again as
/// it was. (Shards of the optimizer's state are made in the first step only, and a trace is of what
/// counts: then steps are not prepared.)
void Trainer::prepare_steps(const RunPosition& from) {
  const bool shards = config_.parallel.gradients == GradientExchange::kShard;
  if (!on_device_ || !config_.prepare_steps || shards || !config_.trace.file.empty()) return;
  if (stop_ || from.epoch >= config_.epochs) return;
  const auto begin = Clock::now();
  const nn::RandomState random = generator_.state();
  const std::vector<nn::NamedTensor> state = common_state(*model_, optimizer_, loss_scaler_);
  std::vector<nn::Tensor> before;
  before.reserve(state.size());
  for (const nn::NamedTensor& item : state) before.push_back(copy_of(item.tensor));
  for (const RunPosition& at : first_of_sizes(from)) {
    load_from(at.epoch, at.step);
    const std::vector<DeviceBatch>& batches =
        batches_.load(plan_.micro_batches(at.step),
                      [this]() -> const nn::MicroBatch& { return loader_->next(); });
    for (int i = 0; i < StepGraphs::kToRecord; ++i) {
      generator_.restore(random);
      const StepTotals totals =
          reducer_->exchange_totals({.samples = samples_of(batches)}).value_or_throw();
      (void)run_on_device(batches, totals, plan_.progress(at.epoch, at.step));
    }
  }
  for (std::size_t i = 0; i < state.size(); ++i) copy_values(before[i], state[i].tensor);
  generator_.restore(random);
  load_from(from.epoch, from.step);
  backend_.synchronize();
  const auto took = Clock::now() - begin;
  start_ += took;
  reporter_.summary().prepare_seconds = std::chrono::duration<double>(took).count();
}

}  // namespace dlaunch
