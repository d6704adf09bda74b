// Distributed validation: rank 0 has the images and scatters them once; every rank evaluates its
// own share; the sums are exact for any split.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/core/module.h"
#include "nn/data/dataset.h"
#include "nn/data/transform.h"
#include "runtime/comm/communicator.h"
#include "trainers/config/config.h"

namespace dlaunch {

/// A rank's share of the validation images, as stored (HWC bytes).
struct ValidationShard {
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
};

/// Collective. `dataset` is needed on rank 0 only and may be null elsewhere; all ranks know the
/// images' shape. Throws StatusError, and on rank 0 nn::DataError.
ValidationShard scatter_validation_set(Communicator& world, const nn::Dataset* dataset,
                                       const nn::ImageShape& shape);

/// Sums over samples.
struct ValidationSums {
  double samples = 0;
  double top1 = 0;  // the right class has the highest score
  double top5 = 0;  // it is among the five highest
  double loss = 0;  // cross entropy, without label smoothing

  double mean_top1() const { return samples > 0 ? top1 / samples : 0; }
  double mean_top5() const { return samples > 0 ? top5 / samples : 0; }
  double mean_loss() const { return samples > 0 ? loss / samples : 0; }
};

/// Adds the sums of a batch: `scores` is [labels.size(), classes]. Of equal scores the one of the
/// lower class counts as higher; a score that is no number makes its sample wrong.
void add_scores(std::span<const float> scores, std::span<const std::int32_t> labels,
                ValidationSums& sums);

struct ValidationOptions {
  std::size_t batch_size = 250;
  ValidationViews views = ValidationViews::kSingle;
};

/// Collective: evaluates each rank's shard and returns the sums over all ranks. The model is in
/// evaluation mode meanwhile. Throws StatusError, and nn::Error if memory does not suffice.
ValidationSums validate(Communicator& world, nn::Backend& backend, nn::Module& model,
                        const nn::ImageTransform& transform, const ValidationShard& shard,
                        const ValidationOptions& options);

}  // namespace dlaunch
