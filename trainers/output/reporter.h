// Reporter: turns what happens in a training run into progress on the screen, lines in the metrics
// file and the final summary. Every rank keeps one, so that the code that trains is the same
// everywhere; only rank 0's writes anything.
#pragma once

#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "nn/core/loss_scaling.h"
#include "nn/data/sampler.h"
#include "runtime/parallel/gradient_reducer.h"
#include "trainers/config/config.h"
#include "trainers/output/event_file.h"
#include "trainers/output/lost_files.h"
#include "trainers/output/metrics_file.h"
#include "trainers/output/progress.h"
#include "trainers/output/step_clock.h"
#include "trainers/output/summary.h"
#include "trainers/validation/validation.h"

namespace dlaunch {

/// Where a person watches.
struct Screen {
  std::ostream& out;
  bool is_terminal = false;
  std::size_t columns = 80;
};

/// A parameter that a rank's loss did not depend on.
struct UnusedParameter {
  int rank = 0;
  std::string name;
};

/// One optimizer step.
struct StepReport {
  std::size_t epoch = 0;  // from 0
  std::size_t step = 0;   // of the epoch, from 0
  StepTotals totals;      // over all ranks
  /// Whether the loss in it is that of all steps since the last report of which this is true;
  /// else it is 0.
  bool loss_known = true;
  double learning_rate = 0;
  StepTimes times;                 // of this rank
  double gradient_norm = 0;        // of the means over all samples; only if the step is a line
  double seconds_since_start = 0;  // of this process's run: what train.max_seconds is a limit of
  std::optional<nn::LossScaleState> loss_scale;  // if losses are scaled; as of a line's step
};

class Reporter {
 public:
  /// `enabled`: this is rank 0. `resumes`: an earlier run goes on, and so does its metrics file.
  /// Throws std::runtime_error if its files cannot be made; what is in them stays until start().
  Reporter(const TrainConfig& config, const Screen& screen, bool enabled, bool resumes);

  /// Once nothing keeps the run from beginning. What is about to be trained; `plan` is an epoch's.
  /// Unless the run resumes, what an earlier one left is set aside. Throws std::runtime_error.
  void start(std::size_t ranks, const nn::StepPlan& plan, std::size_t training_images,
             std::size_t parameters, const std::string& compute_type);
  /// A line on the screen, unless it is empty.
  void note(const std::string& text);
  void warn(const std::string& text);
  void step(const StepReport& report);
  /// Whether the next step will be a line of the metrics; the same on all ranks.
  bool next_step_is_line() const { return (summary_.steps + 1) % config_.log_every == 0; }
  /// The parameters that are unused from now on.
  void unused(const std::vector<UnusedParameter>& parameters);
  /// After the last step of an epoch, with the validation that followed, if one did.
  void epoch(std::size_t epoch, const std::optional<ValidationSums>& validation,
             double validation_seconds);
  /// When training has ended at a limit, with a validation that a run without it would not make:
  /// what state() returns must have been saved before. `may_be_best`: whether it counts for the
  /// best accuracy.
  void stopped(const ValidationSums& validation, bool may_be_best, double validation_seconds);
  /// The same by a signal of that name, and without a validation.
  void interrupted(const std::string& signal);
  /// The run has ended with this line on stderr and this exit code. Nothing before start(): the
  /// metrics are still an earlier run's.
  void failed(const std::string& line, int code);
  /// Whoever writes to the screen next has a line of his own.
  void end_progress() { progress_.end(); }
  /// What has been summed up so far, for a checkpoint, and back.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);
  /// The best validation so far is this one, after so many epochs; 0: the next one is.
  void set_best(double top1, std::size_t epoch);
  /// The summary so far: steps, images, losses, accuracies.
  Summary& summary() { return summary_; }
  const Summary& summary() const { return summary_; }
  void finish();
  /// Of what was reported everything must be in its file now.
  void close(LostFiles& lost);
  /// The last line of the summary's: what the run leaves.
  void list_files(const LostFiles& lost);

 private:
  /// Sums over several steps.
  struct Interval {
    StepTotals totals;
    double seconds = 0;
    std::size_t steps = 0;
    StepTimes times;

    void add(const StepReport& report);
    nlohmann::json state() const;
    void restore(const nlohmann::json& state);
    double mean_loss() const { return totals.samples > 0 ? totals.loss / totals.samples : 0; }
    double images_per_second() const { return seconds > 0 ? totals.samples / seconds : 0; }
  };

  void begin_files();
  void write_step(const StepReport& report);
  void write_epoch(nlohmann::ordered_json line, std::string text,
                   const std::optional<ValidationSums>& validation, bool may_be_best,
                   double validation_seconds);
  double seconds_left(const StepReport& report) const;

  const TrainConfig& config_;
  const bool leads_;
  const bool resumes_;
  bool started_ = false;
  MetricsFile metrics_;
  EventFile events_;
  Progress progress_;
  Summary summary_;
  double learning_rate_ = 0;
  double validation_seconds_ = 0;  // the latest
  Interval epoch_;
  Interval since_metrics_;
  Interval since_progress_;
};

}  // namespace dlaunch
