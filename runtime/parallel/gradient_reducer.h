// GradientReducer: sums the gradients of all ranks while backward is still going on, and hands them
// to the optimizer bucket by bucket.
//
// It knows spans, not layers: gradients are ranges of one flat array. Ranges are grouped, from the
// last to the first (the order in which backward usually finishes them), into buckets; a bucket
// whose ranges are all ready is all-reduced in the background, buckets always in the same order (Li
// et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020).
// After the first step buckets are made anew, in the order in which ranges became ready on rank 0.
//
// Gradients are sums over samples, not means, and the number of samples is summed beside them. So
// ranks may have different numbers of samples, also none, and the result is that of one process
// with all samples. A rank that runs out of data goes on with empty batches until the sum is 0.
// Micro-batches before the last one of a step send nothing at all.
//
//   for (each micro-batch) {
//     compute the loss, as a sum over its samples
//     reducer.begin(last, {samples, loss});
//     backward, calling reducer.mark_ready(i) as soon as range i is final
//   }
//   throw_if_error(reducer.finish([&](FlatSpan span, double scale) {
//     update the parameters in span from their gradients, times scale
//   }));
//
// The gradients themselves are touched by collectives and by the caller only. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/bucket_exchange.h"
#include "runtime/parallel/bucket_plan.h"
#include "runtime/parallel/gradient_reducer_options.h"
#include "runtime/parallel/works.h"

namespace dlaunch {

/// Sums that travel beside the gradients.
struct StepTotals {
  double samples = 0;
  double loss = 0;        // sum over the samples
  double stop_votes = 0;  // ranks that want to stop after this step
};

/// A range that the loss of a step did not depend on, on that rank.
struct UnusedRange {
  int rank = 0;
  std::size_t range = 0;
  friend bool operator==(const UnusedRange&, const UnusedRange&) = default;
};

class GradientReducer {
 public:
  using Options = GradientReducerOptions;
  /// Called with parts of the flat array whose gradients are summed; times `scale` they are means.
  using Update = std::function<void(FlatSpan span, double scale)>;

  /// `ranges` ascend without overlap and cover the parameters in forward order, the same on all
  /// ranks. A range larger than a bucket is a bucket of its own. `world` and `gradients` must
  /// outlive the reducer. Throws std::invalid_argument for options that fit neither each other nor
  /// the ranges.
  GradientReducer(Communicator& world, std::span<float> gradients,
                  std::vector<GradientRange> ranges, Options options = {});
  /// Waits for all-reduces in flight (after an error in the middle of a step). Where an exception
  /// has ended a step on this rank, the others may have started what this one has not: then abort()
  /// the communicator first.
  ~GradientReducer() = default;
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Before the first micro-batch of a step: exchanges its totals now, all of this rank's, for
  /// callers that need them before backward, or that know the loss later only. The totals of
  /// begin() are then left out.
  Result<StepTotals> exchange_totals(const StepTotals& local);

  /// Before the backward pass of a micro-batch: its own totals, and whether it is the last one of
  /// the step, so that gradients are to be exchanged.
  void begin(bool synchronise, const StepTotals& local);

  /// Range `index` has its final gradient of this pass. Throws std::logic_error if it is marked a
  /// second time since begin(), or does not exist.
  void mark_ready(std::size_t index);

  /// After the backward pass of the last micro-batch, before finish(): the global totals.
  /// kInvalidArgument, here and from finish(), if several ranks have begun it without
  /// `synchronise`.
  Result<StepTotals> totals();

  /// Ends the step: hands every bucket to `update` as soon as it is summed, while later ones are
  /// still on their way; not if there was no sample on any rank. Ranges that were never marked are
  /// summed too.
  /// `summed`, if given, is called once before the first update, with its scale, and then not
  /// before all buckets are summed.
  Status finish(const Update& update, const std::function<void(double scale)>& summed = {});

  /// After exchange_totals(), instead of all else: the step was done by repeating one that was
  /// recorded, with all its collectives.
  Status finish_repeated();

  /// The parts of the flat arrays that `update` is called with, on this rank: everything, or with
  /// kShard its share. Final from the first call of `summed` or `update` on.
  std::vector<FlatSpan> updated_here() const;
  /// The order in which ranges become ready; empty before the first step of several ranks.
  const std::vector<std::size_t>& order() const { return order_; }
  /// Ranges that are used by no micro-batch of a step, though perhaps on other ranks: they count as
  /// zeros. The same on all ranks; found out in the first step, and a step after a change.
  const std::vector<UnusedRange>& unused() const { return unused_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// What compression carries from step to step on this rank. Between steps.
  ExchangeMemory memory() const { return exchange_->memory(); }
  /// Before the first step: goes on from memory() of an earlier run. kMismatch if that cannot be.
  Status remember(const ExchangeMemory& memory) { return exchange_->remember(memory); }

 private:
  void check_options() const;
  void plan(std::span<const std::size_t> order);
  GradientExchange exchange_now() const;
  void make_exchange();
  void start_totals();
  Status settle_order();
  Status note_unused();
  Result<StepTotals> wait_for_totals();
  Status wait_for(std::size_t bucket);

  Communicator& world_;
  const std::span<float> gradients_;
  const std::vector<GradientRange> ranges_;
  const Options options_;
  std::vector<std::size_t> order_;  // options_.order, or found out
  std::size_t plain_steps_;         // still to come

  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // by range
  std::unique_ptr<BucketExchange> exchange_;

  // Of the step that is going on:
  StepTotals totals_;                  // of this rank, over the micro-batches
  std::vector<std::uint8_t> used_;     // by range, whether it was marked
  std::vector<bool> ready_;            // the same, of the pass; empty before the first one
  bool totals_known_ = false;          // by exchange_totals()
  bool exchanging_ = false;            // in its last micro-batch, with other ranks
  std::vector<std::size_t> missing_;   // by bucket, ranges not ready yet
  std::size_t started_ = 0;            // buckets
  std::vector<std::size_t> arrivals_;  // while the order is not known
  std::array<double, 4> sums_{};       // the totals on their way, and ranks with use_changed_
  Works sums_work_{1};
  Status sums_status_;

  std::vector<std::uint8_t> last_used_;   // used_ of the last step that was no repetition
  std::vector<std::uint8_t> known_used_;  // used_ when unused_ was found out
  bool use_changed_ = true;               // since then
  std::vector<UnusedRange> unused_;
};

}  // namespace dlaunch
