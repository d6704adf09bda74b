// Evaluation: a network from a file, validated on the test images by all ranks together. Nothing is
// trained, and training images are not opened.
//
// The constructor does what a rank does alone; run() is collective. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "nn/core/flat_parameters.h"
#include "nn/core/module.h"
#include "nn/core/random.h"
#include "nn/data/dataset.h"
#include "trainers/config/config.h"
#include "trainers/device/training_device.h"
#include "trainers/output/metrics_file.h"
#include "trainers/output/reporter.h"
#include "trainers/training/machine.h"
#include "trainers/validation/validation.h"

namespace dlaunch {

class Evaluation {
 public:
  /// `path` is read by rank 0 (network_file.h), which says on stderr if the network was trained
  /// with other settings that matter. Throws ConfigError (the network does not go with the images
  /// or the machine), nn::DataError (images or file cannot be used, or do not go together),
  /// std::runtime_error (the file for the result cannot be made). All arguments but `path` must
  /// outlive the object.
  Evaluation(const TrainConfig& config, const TrainingPlace& place, const Screen& screen,
             const Machine& machine, std::string path);

  /// Validates as configured (train.validation_views and the like); calls `ready` once all ranks
  /// have the network and their images. Rank 0 writes a line to the screen and one to
  /// output.directory/validation.jsonl, unless the configuration wants no metrics. Returns the same
  /// on all ranks. Throws StatusError, nn::DataError, Divergence if the loss is infinite or no
  /// number, after that is written; std::runtime_error if the line cannot be.
  ValidationSums run(const std::function<void()>& ready);

 private:
  void load();
  void share();
  void report(const ValidationSums& sums, double seconds);

  const TrainConfig& config_;
  Communicator& world_;
  nn::Backend& backend_;
  const Screen& screen_;
  std::string path_;
  std::unique_ptr<nn::Dataset> images_;
  nn::Generator generator_;
  std::unique_ptr<nn::Module> model_;
  nn::FlatParameters parameters_;
  ValidationOptions options_;
  MetricsFile metrics_;  // rank 0's
};

}  // namespace dlaunch
