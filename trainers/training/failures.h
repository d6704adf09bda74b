// Failures that all ranks meet at the same place, so that one of them may speak for all.
#pragma once

#include <stdexcept>
#include <string>

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

/// Ranks have found different images.
class DifferentData : public TrainingFailure {
 public:
  using TrainingFailure::TrainingFailure;
};

/// What a checkpoint holds of a run cannot be gone on from.
class UnusableCheckpoint : public TrainingFailure {
 public:
  using TrainingFailure::TrainingFailure;
};

/// A signal has ended the run in good order.
class Interruption : public TrainingFailure {
 public:
  Interruption(int signal, const std::string& what) : TrainingFailure(what), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

}  // namespace dlaunch
