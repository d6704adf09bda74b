// Trainer: one rank's part of a data-parallel training run.
//
// The constructor does what a rank does alone (opens the data, builds the model), so that a program
// can find out whether all ranks got that far; run() is collective from beginning to end. One
// thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/checkpoint/safetensors.h"
#include "nn/core/backend.h"
#include "nn/core/flat_parameters.h"
#include "nn/data/batch_loader.h"
#include "nn/data/resident_images.h"
#include "nn/optim/ema.h"
#include "nn/optim/gradient_clipping.h"
#include "nn/parallel/flat_ranges.h"
#include "runtime/base/logging.h"
#include "runtime/parallel/gradient_reducer.h"
#include "runtime/parallel/timed_communicator.h"
#include "trainers/config/config.h"
#include "trainers/device/device_batches.h"
#include "trainers/device/step_graphs.h"
#include "trainers/device/step_losses.h"
#include "trainers/device/training_device.h"
#include "trainers/output/memory_account.h"
#include "trainers/output/reporter.h"
#include "trainers/trace/observation.h"
#include "trainers/training/best_network.h"
#include "trainers/training/checkpointing.h"
#include "trainers/training/compression_memory.h"
#include "trainers/training/divergence.h"
#include "trainers/training/failures.h"
#include "trainers/training/loss_scaler.h"
#include "trainers/training/machine.h"
#include "trainers/training/rank_optimizer.h"
#include "trainers/training/running_statistics.h"
#include "trainers/validation/validation.h"

namespace dlaunch {

class Trainer {
 public:
  /// Throws ConfigError, nn::DataError, nn::Error, and std::runtime_error if the metrics file
  /// cannot be made. The configuration, what is in `place` and the screen's stream must outlive the
  /// trainer.
  Trainer(const TrainConfig& config, const TrainingPlace& place, const Screen& screen,
          const Machine& machine);
  ~Trainer();

  /// Trains, validates, and on rank 0 reports. Throws StatusError (a peer was lost),
  /// TrainingFailure (ranks differ), DifferentData, UnusableCheckpoint, Divergence, Interruption,
  /// nn::DataError, std::runtime_error (files cannot be written).
  Summary run();

  /// Before run(). `signal` returns the number of a signal after which training is to end with the
  /// current step; 0: none so far. All ranks end then, whichever of them got it: run() throws
  /// Interruption once a checkpoint is written or, in a run that writes none, the network as it is.
  void stop_on(std::function<int()> signal) { stop_signal_ = std::move(signal); }

  /// Before run(). Called on every rank once the ranks agree and have all data: what fails before
  /// that would fail again.
  void when_ready(std::function<void()> ready) { ready_ = std::move(ready); }

  /// After run() has thrown: puts why, and the exit code, into the metrics.
  void note_failure(const std::string& line, int code) { reporter_.failed(line, code); }

  /// After run() has thrown, before something is written to the screen.
  void end_progress() { reporter_.end_progress(); }

  /// The trained parameters.
  const nn::FlatParameters& parameters() const { return parameters_; }

 private:
  using Clock = std::chrono::steady_clock;

  Summary train();
  void initialise_from_files();
  void check_agreement();
  void share_state();
  RunPosition resume();
  RunPosition restore();
  std::vector<RunPosition> first_of_sizes(const RunPosition& from) const;
  void prepare_steps(const RunPosition& from);
  void load_from(std::size_t epoch, std::size_t step);
  void check_loss(const StepTotals& totals, std::size_t epoch, std::size_t step);
  void check_late_loss(double loss, std::size_t epoch, std::size_t step, std::size_t last);
  void check_loss_scale(std::size_t epoch, std::size_t step);
  void check_gradients(std::size_t epoch, std::size_t step);
  Beginning what_is_left(std::size_t epoch, std::size_t step);
  Divergence divergence(std::size_t epoch, std::size_t step, const std::string& what,
                        bool in_images = false) const;
  bool is_last(std::size_t steps) const;
  bool losses_are_due(const RunPosition& next, const StepTotals& totals);
  void take_losses(StepTotals& totals, std::size_t epoch, std::size_t step);
  RunPosition train_epoch(const RunPosition& begin);
  void check_network(std::string_view not_done) const;
  std::string compute_type() const;
  void sum_up_times();
  void take_best(const nlohmann::json& report, const RunPosition& at);
  void save(const RunPosition& position);
  void save_network(const std::string& name, bool mine, const nn::TensorMetadata& about);
  void save_best(const ValidationSums& sums);
  void save_final_network();
  Status remember(ExchangeMemory memory, const nlohmann::json& report);
  void share_network();
  void share_parameters();
  void exchange_average();
  ValidationSums validate_model(bool may_be_best);
  StepTotals train_step(std::size_t micro_batches, double progress);
  StepTotals train_step_on_device(std::size_t micro_batches, double progress);
  bool run_on_device(const std::vector<DeviceBatch>& batches, const StepTotals& totals,
                     double progress);
  void work_on_device(const std::vector<DeviceBatch>& batches);
  bool settles_first() const { return loss_scaler_.has_value() || clipper_.has_value(); }
  Status finish_gradients();
  void settle_gradients(double scale);
  void make_means(FlatSpan span, double scale);
  void update(FlatSpan span, double scale);
  std::vector<nn::NamedTensor> leader_state(const nn::SafetensorsFile* source);
  void report_unused();
  const nn::MicroBatch& next_batch();
  nn::Tensor images_of(const nn::MicroBatch& batch) const;
  void run_micro_batch(const nn::MicroBatch& batch, bool last);
  nn::Tensor loss_of(const DeviceBatch& batch);
  void run_backward(const nn::Tensor& loss, const nn::Tensor& gradient = {});
  std::string why_no_graphs(const TrainingPlace& place) const;
  void finish_epoch(std::size_t epoch);
  void validate_stop();
  void check_validation() const;
  void note_empty_trace(std::uint64_t begun_after);
  Summary finish();
  double gradient_norm();
  bool out_of_time() const;
  int signalled() const { return stop_signal_ ? stop_signal_() : 0; }
  double stop_vote() const { return out_of_time() || signalled() != 0 ? 1 : 0; }
  int interrupted_by(const RunPosition& at);
  [[noreturn]] void end_interrupted(int signal);

  const TrainConfig& config_;
  Observation observation_;
  TimedCommunicator world_;
  nn::Backend& backend_;
  /// Tensors are on a device, for which the host does not wait in a step.
  const bool on_device_ = !backend_.host_accessible();
  MemoryAccount memory_;
  nn::Generator generator_;  // of this rank: dropout masks, and rank 0's initial weights
  nn::Generator generator_before_step_ = generator_;
  std::unique_ptr<nn::Dataset> train_set_;
  std::unique_ptr<nn::Dataset> validation_set_;  // rank 0 only, until it has been scattered
  nn::TensorMetadata about_network_;             // for its files
  nn::ImageTransform training_transform_;
  std::unique_ptr<nn::Module> model_;
  nn::FlatParameters parameters_;
  const nn::RangeIndex range_of_;
  RankOptimizer optimizer_;
  CompressionMemory compression_memory_;
  RankStatistics rank_statistics_;
  ExchangeMemory kept_memory_;  // of a run on several ranks that this one, on one, has gone on from
  std::optional<nn::Ema> ema_;  // of rank 0, which keeps it for all
  nn::Schedule learning_rate_;
  nn::Schedule stem_learning_rate_;
  std::optional<GradientReducer> reducer_;  // once it is known where training begins
  std::vector<UnusedRange> reported_unused_;
  bool reported_differences_ = false;  // of the ranks' parameters
  nn::StepPlan plan_;
  ValidationOptions validation_options_;
  nn::ImageTransform validation_transform_;
  std::optional<nn::ResidentImages> resident_images_;  // else the loader makes images
  std::optional<nn::BatchLoader> loader_;              // once it is known where training begins
  ValidationShard shard_;
  // On a device only:
  StepLosses losses_;
  nn::Tensor step_scale_;                         // [1]: from sums of gradients to means
  std::optional<LossScaler> loss_scaler_;         // does that then
  std::optional<nn::LossScaleState> loss_scale_;  // as it was read last
  DeviceBatches batches_;
  std::optional<StepGraphs> graphs_;
  Checkpointing checkpointing_;
  Reporter reporter_;
  Logger logger_ = make_logger("checkpoint");
  std::optional<BestNetwork> best_;  // rank 0: what is in its file
  std::string best_failure_;         // why the best network is not in its file
  Clock::time_point start_ = Clock::now();
  /// What processes whose run goes on here have taken; on all ranks rank 0's.
  struct {
    double total_seconds = 0;
    double communication_seconds = 0;
  } earlier_;
  std::optional<nn::GradientClipper> clipper_;
  bool measures_gradients_ = false;  // in this step
  double gradient_squares_ = 0;      // sum over what this rank has updated in it
  bool stop_ = false;
  std::function<int()> stop_signal_;
  std::function<void()> ready_;
};

}  // namespace dlaunch
