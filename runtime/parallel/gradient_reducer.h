// GradientReducer: sums the gradients of all ranks while backward is still going on, and divides
// them by the global number of samples.
//
// It knows spans, not layers: gradients are ranges of one flat array. Ranges are grouped, from the
// last to the first (the order in which backward finishes them), into buckets; a bucket whose
// ranges are all ready is all-reduced in the background, buckets always in the same order (Li et
// al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020).
//
// Gradients are sums over samples, not means, and the number of samples travels with the first
// bucket. So ranks may have different numbers of samples, also none, and the result is that of one
// process with all samples. Micro-batches before the last one of a step send nothing at all.
//
//   for (each micro-batch) {
//     compute the loss, as a sum over its samples
//     reducer.begin(last, {samples, loss});
//     backward, calling reducer.mark_ready(i) as soon as range i is final
//   }
//   StepTotals totals = reducer.finish().value_or_throw();
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"

namespace dlaunch {

/// Elements [offset, offset + count) of the flat array.
struct GradientRange {
  std::size_t offset = 0;
  std::size_t count = 0;
};

/// Sums that travel with the gradients, so that they cost no collective of their own.
struct StepTotals {
  double samples = 0;
  double loss = 0;        // sum over the samples
  double stop_votes = 0;  // ranks that want to stop after this step
};

struct GradientReducerOptions {
  std::size_t bucket_bytes = 25U << 20;
  std::size_t first_bucket_bytes = 1U << 20;  // small, so that communication begins early
};

class GradientReducer {
 public:
  using Options = GradientReducerOptions;

  /// `ranges` ascend without overlap and cover the parameters in forward order, the same on all
  /// ranks. A range larger than a bucket is a bucket of its own. `world` and `gradients` must
  /// outlive the reducer.
  GradientReducer(Communicator& world, std::span<float> gradients,
                  std::vector<GradientRange> ranges, Options options = {});
  /// Waits for all-reduces in flight (after an error in the middle of a step).
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Before the backward pass of a micro-batch: its own totals, and whether it is the last one of
  /// the step, so that gradients are to be exchanged.
  void begin(bool synchronise, const StepTotals& local);

  /// Range `index` has its final gradient of this pass. Does nothing while accumulating.
  void mark_ready(std::size_t index);

  /// After the backward pass of the last micro-batch: waits until all gradients are summed, divides
  /// them by the global number of samples (unless that is 0) and returns the global totals. Ranges
  /// that were never marked (parameters the loss does not depend on) are summed too.
  Result<StepTotals> finish();

  std::size_t bucket_count() const { return buckets_.size(); }

 private:
  struct Bucket {
    std::size_t begin = 0;  // elements of gradients_
    std::size_t end = 0;
    std::size_t ranges = 0;   // it consists of
    std::size_t missing = 0;  // of those, not ready yet
  };

  void launch_next();
  Status wait_for_all();

  Communicator& world_;
  std::span<float> gradients_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // range -> bucket
  std::vector<float> first_;            // the first bucket with the totals behind it
  std::vector<Work> in_flight_;         // of buckets 0, 1, ...
  StepTotals totals_;                   // of this rank, over the step's micro-batches
  bool exchanging_ = false;             // in the last micro-batch of a step, with other ranks
};

}  // namespace dlaunch
