// Which samples a rank trains on, and when.
//
// The order of an epoch depends on (seed, epoch) alone. A global step takes the next contiguous
// block of that order; the block is cut into micro-batches, and each of those into one part per
// rank. So the samples of a step, and with the same number of micro-batches those of a
// (synchronised) micro-batch, do not depend on the number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dlaunch::nn {

/// The order in which epoch `epoch` visits the samples 0 ... size-1.
std::vector<std::uint32_t> epoch_order(std::size_t size, std::uint64_t seed, std::uint64_t epoch);

/// Positions [begin, end) of an epoch's order.
struct SampleRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  std::size_t size() const { return end - begin; }
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

/// How `size` samples are cut into `parts` parts whose sizes differ by one at most; part `index`.
SampleRange even_part(std::size_t size, std::size_t parts, std::size_t index);

/// How an epoch is cut into steps, micro-batches and ranks. A plain value. Every sample belongs to
/// exactly one part. All ranks run the same number of micro-batches in a step; the last step of an
/// epoch is as small as what is left, runs no more micro-batches than it needs, and its parts may
/// be empty.
class StepPlan {
 public:
  /// `samples_per_step` over all ranks and micro-batches of a step; all counts at least 1.
  StepPlan(std::size_t samples, std::size_t samples_per_step, std::size_t micro_batches,
           std::size_t ranks);

  std::size_t samples() const { return samples_; }
  std::size_t steps() const;
  std::size_t micro_batches(std::size_t step) const;
  /// Epochs done before a step. Rounded once, so that it equals a fraction of an epoch that is
  /// written in decimal.
  double progress(std::size_t epoch, std::size_t step) const;
  /// Over all ranks.
  SampleRange step_range(std::size_t step) const;
  SampleRange micro_batch(std::size_t step, std::size_t micro_batch, std::size_t rank) const;
  /// The same of all ranks together.
  SampleRange whole_micro_batch(std::size_t step, std::size_t micro_batch) const;
  /// The most samples a micro-batch of one rank can have.
  std::size_t largest_micro_batch() const;

 private:
  std::size_t samples_;
  std::size_t samples_per_step_;
  std::size_t micro_batches_;
  std::size_t ranks_;
};

}  // namespace dlaunch::nn
