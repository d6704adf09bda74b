// What a training run came to, for the last lines on the screen and in the metrics file.
#pragma once

#include <cmath>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/comm/communicator.h"
#include "trainers/output/resource_use.h"
#include "trainers/validation/validation.h"

namespace dlaunch {

struct Summary {
  std::size_t ranks = 1;
  std::size_t epochs = 0;  // begun
  std::size_t steps_per_epoch = 0;
  std::size_t steps = 0;
  /// Of the steps of this process, those that were a CUDA graph's: their collectives were called
  /// once, when it was recorded.
  std::size_t repeated_steps = 0;
  std::string why_not_repeated;  // on a GPU, where they were to be and are not
  double images = 0;             // trained on, over all ranks
  /// From the start of the process to the end of its first step, which on a device is waited for;
  /// of the rank that took longest.
  std::optional<double> first_step_seconds;
  /// Before training, which it is no part of: for steps that are done and recorded beforehand, and
  /// undone; of this process.
  double prepare_seconds = 0;
  double train_seconds = 0;  // without validation
  double total_seconds = 0;
  double communication_seconds = 0;  // of a rank's training time, waiting for others: the longest
  std::size_t peak_resident_bytes = 0;  // of a process, the largest
  std::size_t peak_tensor_bytes = 0;    // of that, tensors
  double last_train_loss = 0;           // mean over the last epoch
  ValidationSums validation;            // the last one
  std::size_t validated_steps = 0;      // those before it
  double best_top1 = 0;
  std::size_t best_epoch = 0;  // from 1
  ResourceUse use;

  /// Whether the last validation is of what the last step left.
  bool is_validated() const { return validated_steps == steps; }
  bool is_best(const ValidationSums& sums) const {
    return std::isfinite(sums.loss) && sums.mean_top1() >= best_top1;
  }
  double images_per_second() const { return train_seconds > 0 ? images / train_seconds : 0; }
};

/// Collective: replaces the figures that differ between ranks by their maximum. Throws StatusError.
void reduce_summary(Communicator& world, Summary& summary);

/// Several lines, without a newline at the end.
std::string format_summary(const Summary& summary);
nlohmann::ordered_json summary_to_json(const Summary& summary);

}  // namespace dlaunch
