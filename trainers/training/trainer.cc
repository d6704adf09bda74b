#include "trainers/training/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <spdlog/logger.h>

#include "nn/core/autograd.h"
#include "nn/core/error.h"
#include "nn/core/optimizer_kernels.h"
#include "nn/data/streams.h"
#include "runtime/base/hash_text.h"
#include "runtime/base/process_stat.h"
#include "trainers/training/datasets.h"
#include "trainers/training/network_file.h"
#include "trainers/training/trainer_parts.h"

namespace dlaunch {
namespace {

double seconds_between(std::chrono::steady_clock::time_point begin,
                       std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Does what needs memory in proportion to micro-batches.
template <typename Work>
auto with_batches(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw nn::Error("out of memory; use smaller batches and more train.accumulation_steps");
  }
}

/// The network of the file that the configuration names.
void load_weights(const TrainConfig& config, const nn::Module& model) {
  using Classifier = NetworkFile::Classifier;
  try {
    NetworkFile(config.weights)
        .load(model, config.new_classifier ? Classifier::kStays : Classifier::kFromFile);
  } catch (const nn::DataError& error) {
    throw nn::DataError(fmt::format("model.weights: {}", error.what()));
  }
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, const TrainingPlace& place, const Screen& screen,
                 const Machine& machine)
    : config_(config),
      observation_(config.trace, place.world.rank() == 0),
      // On a device collectives are only queued: when they end there the host does not know.
      world_(place.world, place.backend.host_accessible() ? &observation_ : nullptr),
      backend_(place.backend),
      memory_(backend_),
      generator_(config.seed, random_stream(nn::RandomPurpose::kModel, 0,
                                            static_cast<std::uint64_t>(world_.rank()))),
      train_set_(open_dataset(config.data, nn::Split::kTrain)),
      validation_set_(world_.rank() == 0 ? open_validation_set(config.data, *train_set_) : nullptr),
      about_network_(describe_network(config, *train_set_)),
      training_transform_(training_transform(config.data, train_set_->image_shape())),
      model_(make_network(config, data_shape(*train_set_), compute_type_of(config, backend_),
                          backend_, generator_, &world_)),
      parameters_(flatten_parameters(*model_, &world_)),
      range_of_(parameters_),
      optimizer_(parameters_, config.optimizer,
                 config.parallel.gradients == GradientExchange::kShard, world_),
      compression_memory_(backend_, world_),
      rank_statistics_(backend_, world_, *model_, config.sync_batch_norm),
      ema_(make_ema(config, *model_, world_)),
      learning_rate_(config.learning_rate()),
      stem_learning_rate_(config.stem_learning_rate()),
      plan_(affordable_plan(config, world_, *train_set_, *model_, backend_, machine)),
      validation_options_(affordable_validation(
          config, *model_, backend_,
          {.image = image_batch(1, train_set_->image_shape()),
           .in_training = plan_.largest_micro_batch(),
           .at_most = validation_set_ == nullptr ? 0 : largest_part(*validation_set_, world_)},
          machine)),
      validation_transform_(train_set_->image_shape(), config.data.normalization, {}),
      resident_images_(make_resident_images(config, backend_, *train_set_, plan_)),
      losses_(backend_, world_),
      step_scale_(nn::Tensor::zeros(backend_, {1})),
      loss_scaler_(make_loss_scaler(config, backend_, world_)),
      batches_(backend_, resident_images_ ? &*resident_images_ : nullptr,
               resident_images_ ? compute_type_of(config, backend_) : DType::kF32),
      checkpointing_(
          config, world_, *train_set_, plan_, common_state(*model_, optimizer_, loss_scaler_),
          [this](const nn::SafetensorsFile* source) { return leader_state(source); }, generator_),
      reporter_(config, screen, world_.rank() == 0, checkpointing_.resumes()) {
  if (config.clip_norm > 0) clipper_.emplace(backend_, config.clip_norm);
  if (loss_scaler_) optimizer_.skip_when(loss_scaler_->skip());
  if (world_.rank() == 0 && !checkpointing_.resumes()) initialise_from_files();
  if (ema_ && !checkpointing_.resumes()) ema_->reset();
  reporter_.warn(warn_of_threads(machine));
  if (config.checkpoint.restarted && !config.checkpoint.enabled())
    reporter_.warn(fmt::format(
        "dlaunch has restarted the job, which writes no checkpoints: training begins again {}; "
        "checkpoint.every_epochs would let it resume",
        checkpointing_.resumes() ? "from " + checkpointing_.found() : "with step 1"));
  if (!on_device_) reporter_.note(remark_on_idle_cores(machine));
  reporter_.note(config.schedule_remark());
  reporter_.note(place.remark);
  reporter_.note(train_set_->remark());
  if (validation_set_) reporter_.note(validation_set_->remark());
  const std::string no_graphs = why_no_graphs(place);
  graphs_.emplace(backend_, generator_, world_.size() > 1 ? place.device_world : nullptr,
                  on_device_ && config.cuda_graphs && no_graphs.empty());
  if (on_device_ && config.cuda_graphs && !no_graphs.empty()) {
    reporter_.summary().why_not_repeated = no_graphs;
    reporter_.note("steps are not recorded as CUDA graphs: " + no_graphs);
  }
  make_logger("start")->debug("images and network are there {:.3f} s after the start",
                              seconds_since_process_start());
}

Trainer::~Trainer() = default;

/// Rank 0: what other weights than random ones are to begin with.
void Trainer::initialise_from_files() {
  if (!config_.weights.empty()) return load_weights(config_, *model_);
  nn::fill_whitening(*model_, [&](nn::PatchCovariance& covariance, std::size_t images) {
    add_training_images(*train_set_, validation_transform_, images, covariance);
  });
}

Summary Trainer::run() {
  try {
    return train();
  } catch (const TrainingFailure&) {
    observation_.give_up(world_, true);
    throw;
  } catch (const std::exception&) {
    observation_.give_up(world_, false);
    throw;
  }
}

Summary Trainer::train() {
  start_ = Clock::now();
  check_agreement();
  share_state();
  reporter_.start(static_cast<std::size_t>(world_.size()), plan_, train_set_->size(),
                  static_cast<std::size_t>(model_->parameter_count()), compute_type());
  RunPosition position = resume();
  const std::uint64_t begun_after = position.steps_done;
  if (ready_) ready_();
  observation_.start(world_, *model_);
  const Logger start = make_logger("start");
  start->debug("training could begin {:.3f} s after the start", seconds_since_process_start());
  prepare_steps(position);
  start->debug("training begins {:.3f} s after the start", seconds_since_process_start());
  while (position.epoch < config_.epochs && !stop_) {
    const std::size_t epoch = position.epoch;
    position = train_epoch(position);
    if (position.epoch > epoch) finish_epoch(epoch);
    const bool last = stop_ || position.epoch == config_.epochs;
    if (checkpointing_.is_due(position, last)) save(position);
  }
  if (const int signal = interrupted_by(position); signal != 0) end_interrupted(signal);
  if (!reporter_.summary().is_validated()) validate_stop();
  check_validation();
  note_empty_trace(begun_after);
  return finish();
}

/// The loader's next micro-batch is the first one of this step.
void Trainer::load_from(std::size_t epoch, std::size_t step) {
  with_batches([&] {
    loader_.emplace(*train_set_, training_transform_,
                    nn::BatchLoaderOptions{.plan = plan_,
                                           .rank = static_cast<std::size_t>(world_.rank()),
                                           .seed = config_.seed,
                                           .first_epoch = epoch,
                                           .first_step = step,
                                           .depth = config_.data.prefetch,
                                           .workers = config_.data.workers,
                                           .mix = config_.data.mix,
                                           .resize = config_.data.resize,
                                           .pixels = !resident_images_,
                                           .resident = config_.data.resident});
  });
}

namespace {

/// Of what an image's number stands for: it is the same where labels and names of classes are.
std::int64_t digest_of_labels(const nn::Dataset& images) {
  std::string text;
  for (const std::string& name : images.class_names()) text += name + '\0';
  std::uint64_t digest = hash_text(text);
  for (std::size_t i = 0; i < images.size(); ++i)
    digest = (digest ^ static_cast<std::uint64_t>(images.label(i))) * 0x9E3779B97F4A7C15U;
  return static_cast<std::int64_t>(digest);
}

}  // namespace

/// What a configuration that is the same does not tell: which images ranks have found, and what
/// "auto" has come to on their machines. They would wait for each other for ever, or train on
/// labels of different classes.
void Trainer::check_agreement() {
  const std::array<std::int64_t, 3> mine{
      static_cast<std::int64_t>(train_set_->size()), digest_of_labels(*train_set_),
      static_cast<std::int64_t>(compute_type_of(config_, backend_))};
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(world_.size()));
  throw_if_error(world_.all_gather(mine, all).within("start"));
  for (std::size_t i = 0; i < all.size(); i += mine.size()) {
    const std::size_t rank = i / mine.size();
    if (all[i] != all[0])
      throw DifferentData(
          fmt::format("rank {} has {} training images, rank 0 {}; give all ranks the same data",
                      rank, all[i], all[0]));
    if (all[i + 1] != all[1])
      throw DifferentData(
          fmt::format("rank {} has training images of other classes than rank 0, or in another "
                      "order; give all ranks the same data",
                      rank));
    if (all[i + 2] != all[2])
      throw TrainingFailure(
          fmt::format("train.compute_type: \"auto\" is {} on rank {} and {} on rank 0; name one "
                      "that all machines have",
                      name_of_compute_type(static_cast<DType>(all[i + 2])), rank,
                      name_of_compute_type(static_cast<DType>(all[2]))));
  }
}

void Trainer::share_state() {
  throw_if_error(broadcast_network(world_, parameters_, *model_));
  shard_ = scatter_validation_set(world_, validation_set_.get(), train_set_->image_shape());
  validation_set_.reset();
}

/// Trains to the end of the epoch, or to where all stop. Returns how far it came.
RunPosition Trainer::train_epoch(const RunPosition& from) {
  RunPosition position = from;
  const std::size_t epoch = from.epoch;
  while (position.epoch == epoch && !stop_) {
    if (position.step > from.step && checkpointing_.is_due(position, false)) save(position);
    const std::size_t step = position.step;
    const double progress = plan_.progress(epoch, step);
    observation_.begin_step(position.steps_done + 1);
    memory_.begin_step();
    measures_gradients_ = reporter_.next_step_is_line();
    const std::size_t micro_batches = plan_.micro_batches(step);
    StepTotals totals = with_batches([&] {
      return on_device_ ? train_step_on_device(micro_batches, progress)
                        : train_step(micro_batches, progress);
    });
    RunPosition next{position.steps_done + 1, epoch, step + 1};
    if (next.step >= plan_.steps()) next = {next.steps_done, epoch + 1, 0};
    const bool loss_known = !on_device_ || losses_are_due(next, totals);
    if (on_device_ && loss_known) take_losses(totals, epoch, step);
    if (!reporter_.summary().first_step_seconds)
      reporter_.summary().first_step_seconds = seconds_since_process_start();
    check_loss(totals, epoch, step);
    check_gradients(epoch, step);
    report_unused();
    if (ema_ && step % config_.ema.every == 0) ema_->update();

    memory_.end_step(parameters_, optimizer_.state_bytes());
    const double norm = gradient_norm();
    reporter_.step({.epoch = epoch,
                    .step = step,
                    .totals = totals,
                    .loss_known = loss_known,
                    .learning_rate = learning_rate_(progress),
                    .times = observation_.end_step(),
                    .gradient_norm = norm,
                    .seconds_since_start = seconds_between(start_, Clock::now()),
                    .loss_scale = loss_scale_});
    if (observation_.clock().has_many_waits()) observation_.compare_waits(world_);
    stop_ = is_last(reporter_.summary().steps) || totals.stop_votes > 0;
    position = next;
  }
  return position;
}

/// Whether training ends with the step that makes so many.
bool Trainer::is_last(std::size_t steps) const {
  return config_.max_steps > 0 && steps >= config_.max_steps;
}

/// `progress` is in epochs.
StepTotals Trainer::train_step(std::size_t micro_batches, double progress) {
  generator_before_step_ = generator_;
  parameters_.zero_gradients();
  for (std::size_t i = 0; i < micro_batches; ++i)
    run_micro_batch(next_batch(), i + 1 == micro_batches);
  optimizer_.begin_step(learning_rate_(progress), stem_learning_rate_(progress));
  const StepTotals totals = reducer_->totals().value_or_throw();
  if (std::isfinite(totals.loss)) {
    throw_if_error(finish_gradients());
  } else {  // there is nothing to learn from, but what was begun has to be ended by all ranks
    throw_if_error(reducer_->finish([](FlatSpan, double) {}));
  }
  return totals;
}

/// From sums of gradients over all ranks to new parameters: bucket by bucket as they are summed,
/// unless something has to be known of all gradients first.
Status Trainer::finish_gradients() {
  const auto step = [this](FlatSpan span, double scale) { update(span, scale); };
  if (!settles_first()) return reducer_->finish(step);
  return reducer_->finish(step, [this](double scale) { settle_gradients(scale); });
}

/// Makes means of all sums, tells whether a scaled step counts, and clips.
void Trainer::settle_gradients(double scale) {
  const Observation::Section section(observation_, StepPhase::kOptimizer);
  const std::vector<FlatSpan> spans = reducer_->updated_here();
  for (const FlatSpan span : spans) make_means(span, scale);
  if (loss_scaler_) loss_scaler_->decide();
  if (!clipper_) return;
  float* const gradients = parameters_.gradients.data<float>();
  const auto size = [](FlatSpan span) { return static_cast<std::int64_t>(span.size()); };
  clipper_->begin();
  for (const FlatSpan span : spans) clipper_->add(size(span), gradients + span.begin);
  if (config_.parallel.gradients == GradientExchange::kShard)
    throw_if_error(world_.all_reduce(Buffer(clipper_->squares().data<double>(), 1, DType::kF64))
                       .within("gradient norm"));
  for (const FlatSpan span : spans) clipper_->clip(size(span), gradients + span.begin);
}

/// From sums of gradients, perhaps scaled ones, to means, in one part of the flat arrays. On a
/// device the factor lies there, as it differs from step to step.
void Trainer::make_means(FlatSpan span, double scale) {
  const auto count = static_cast<std::int64_t>(span.size());
  float* const gradients = parameters_.gradients.data<float>() + span.begin;
  if (loss_scaler_) {
    loss_scaler_->unscale(count, gradients);
  } else if (on_device_) {
    backend_.scale(count, 1, step_scale_.data<const float>(), gradients, gradients);
  } else {
    backend_.scale(count, static_cast<float>(scale), nullptr, gradients, gradients);
  }
}

void Trainer::update(FlatSpan span, double scale) {
  const Observation::Section section(observation_, StepPhase::kOptimizer);
  if (!settles_first()) make_means(span, scale);
  if (measures_gradients_ && !on_device_ && !clipper_)
    gradient_squares_ +=
        backend_.optimizer().sum_of_squares(static_cast<std::int64_t>(span.size()),
                                            parameters_.gradients.data<const float>() + span.begin);
  optimizer_.update(span, *reducer_);
}

/// Collective: of the step's mean gradients, before they were clipped; 0 if the step does not ask
/// for it.
double Trainer::gradient_norm() {
  if (!measures_gradients_) return 0;
  if (clipper_) return clipper_->norm();
  std::array<double, 1> squares{std::exchange(gradient_squares_, 0)};
  if (config_.parallel.gradients == GradientExchange::kShard)
    throw_if_error(world_.all_reduce(squares).within("gradient norm"));
  return std::sqrt(squares[0]);
}

void Trainer::report_unused() {
  if (reducer_->unused() == reported_unused_) return;
  reported_unused_ = reducer_->unused();
  std::vector<UnusedParameter> names;
  for (const UnusedRange& unused : reported_unused_)
    names.push_back({unused.rank, parameters_.views[unused.range].name});
  reporter_.unused(names);
}

const nn::MicroBatch& Trainer::next_batch() {
  const Observation::Section section(observation_, StepPhase::kData);
  return loader_->next();
}

nn::Tensor Trainer::images_of(const nn::MicroBatch& batch) const {
  return nn::Tensor::from(backend_, image_batch(batch.size, batch.shape),
                          std::span<const float>(batch.images));
}

void Trainer::run_micro_batch(const nn::MicroBatch& batch, bool last) {
  std::optional<Observation::Section> section(std::in_place, observation_, StepPhase::kForward);
  const nn::Tensor scores = (*model_)(images_of(batch));
  const nn::CrossEntropyOptions options{.label_smoothing = config_.label_smoothing,
                                        .reduction = nn::Reduction::kSum};
  const std::span<const std::int32_t> labels = batch.labels;
  const nn::Tensor loss =
      batch.partner_labels.empty()
          ? cross_entropy(scores, labels, options)
          : mixed_cross_entropy(scores, labels, batch.partner_labels, batch.own_share, options);
  reducer_->begin(last, {.samples = static_cast<double>(batch.size),
                         .loss = loss.item(),
                         .stop_votes = last ? stop_vote() : 0});
  section.emplace(observation_, StepPhase::kBackward);
  run_backward(loss);
}

/// `gradient` is the loss's, 1 if it is undefined.
void Trainer::run_backward(const nn::Tensor& loss, const nn::Tensor& gradient) {
  nn::backward(loss, {.on_gradient_ready =
                          [&](const nn::Tensor& leaf) {
                            reducer_->mark_ready(range_of_.find(leaf).value());
                          },
                      .gradient = gradient,
                      .observer = observation_.backward_observer()});
}

bool Trainer::out_of_time() const {
  return config_.max_seconds > 0 && seconds_between(start_, Clock::now()) >= config_.max_seconds;
}

/// Collective, where all ranks have stopped for the same reason: the signal that it was, on
/// whichever rank; 0: another one.
int Trainer::interrupted_by(const RunPosition& at) {
  if (!stop_ || at.epoch == config_.epochs || is_last(at.steps_done)) return 0;
  std::array<std::int32_t, 1> signal{signalled()};
  throw_if_error(world_.all_reduce(signal, ReduceOp::kMax).within("stop"));
  return signal[0];
}

void Trainer::finish_epoch(std::size_t epoch) {
  const bool final = epoch + 1 == config_.epochs;
  const bool due = config_.validate_every > 0 && (epoch + 1) % config_.validate_every == 0;
  const auto begin = Clock::now();
  std::optional<ValidationSums> sums;
  if (final || due) sums = validate_model(true);
  observation_.compare_waits(world_);
  reporter_.epoch(epoch, sums, seconds_between(begin, Clock::now()));
}

/// At a limit, and after the last checkpoint: a run that goes on knows nothing of it, so its best
/// network must still be in the file.
void Trainer::validate_stop() {
  const auto begin = Clock::now();
  const bool may_be_best = !(config_.checkpoint.keep_best && config_.checkpoint.enabled());
  const ValidationSums sums = validate_model(may_be_best);
  observation_.compare_waits(world_);
  reporter_.stopped(sums, may_be_best, seconds_between(begin, Clock::now()));
}

/// If none of the steps that were to be traced has been done here.
void Trainer::note_empty_trace(std::uint64_t begun_after) {
  const TraceOptions& trace = config_.trace;
  const std::uint64_t done = reporter_.summary().steps;
  const bool has_any = trace.first_step <= done && trace.last_step > begun_after;
  if (trace.file.empty() || has_any || done == begun_after) return;
  reporter_.note(
      fmt::format("{}: shows no steps: output.trace_steps begins with {}, and here {} "
                  "to {} were done",
                  trace.file, trace.first_step, begun_after + 1, done));
}

/// Of the whole run, to which earlier processes may have contributed.
void Trainer::sum_up_times() {
  Summary& summary = reporter_.summary();
  summary.total_seconds = earlier_.total_seconds + seconds_between(start_, Clock::now());
  summary.communication_seconds =
      earlier_.communication_seconds + observation_.clock().sums()[StepPhase::kCommunication];
}

Summary Trainer::finish() {
  Summary& summary = reporter_.summary();
  sum_up_times();
  summary.peak_resident_bytes = peak_resident_bytes();
  summary.peak_tensor_bytes = memory_.peak();
  summary.use = gather_use(world_, observation_.clock(), memory_.use());
  reduce_summary(world_, summary);
  reporter_.finish();
  LostFiles lost;
  // First what takes most room: a checkpoint may be three times the network.
  lost.try_to_write(kCheckpointFolder, [&] { checkpointing_.finish(); });
  lost.try_to_write(kModelFile, [&] { save_final_network(); });
  lost.try_to_write(config_.trace.file, [&] { observation_.finish(world_); });
  reporter_.close(lost);
  if (!best_failure_.empty()) lost.add(kBestFile, best_failure_);
  reporter_.list_files(lost);
  if (!lost.empty()) throw std::runtime_error(lost.why());
  return summary;
}

}  // namespace dlaunch
