// Failures that all ranks meet at the same place, so that one of them may speak for all.
#pragma once

#include <stdexcept>

namespace dlaunch {

class TrainingFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A loss, a gradient, or a number of the network is not finite.
class Divergence : public TrainingFailure {
 public:
  using TrainingFailure::TrainingFailure;
};

/// What a checkpoint holds of a run cannot be gone on from.
class UnusableCheckpoint : public TrainingFailure {
 public:
  using TrainingFailure::TrainingFailure;
};

}  // namespace dlaunch
