// BucketExchange: how buckets of gradients are summed over the ranks - the place where compression
// and sharding come in. Made for one bucket plan; used by GradientReducer, on one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/bucket_plan.h"
#include "runtime/parallel/exchange_memory.h"

namespace dlaunch {

class BucketExchange {
 public:
  virtual ~BucketExchange() = default;  // waits for what is in flight

  /// This rank's gradients of bucket `index` are final: begins to sum them, in the background.
  /// Every bucket once a step, in the order of the plan.
  virtual void start(std::size_t index) = 0;
  /// Does what has become possible meanwhile. Does not wait.
  virtual void advance() {}
  /// Returns when the sums are in place. In the order of the plan, when all were started.
  virtual Status wait(std::size_t index) = 0;
  /// Where the sums of bucket `index` are on this rank: all of it, unless gradients are sharded.
  virtual FlatSpan summed(std::size_t index) const = 0;

  /// The parameters of summed(index) have their new values.
  virtual void updated(std::size_t /*index*/) {}
  /// Ends the step: all ranks have all parameters' new values.
  virtual Status finish() { return {}; }

  /// What it carries from step to step; empty if that is nothing. Between steps.
  virtual ExchangeMemory memory() const { return {}; }
  /// Goes on from what memory() gave. kMismatch if it is another network's or has another rank.
  virtual Status remember(const ExchangeMemory& /*memory*/) {
    return Status(StatusCode::kMismatch, "this exchange carries nothing from step to step");
  }
};

/// What an exchange works on; all of it outlives it.
struct ExchangeContext {
  Communicator& world;
  std::span<float> gradients;
  /// The number of samples of the step, over all ranks. Waits for it.
  std::function<Result<double>()> samples;
};

/// All-reduces each bucket, in place. This one and the next touch no gradient themselves, so they
/// work for memory of any device that the communicator can use.
std::unique_ptr<BucketExchange> make_all_reduce_exchange(ExchangeContext context,
                                                         std::vector<Bucket> buckets);

/// Sums each bucket's part for each rank there only, and gathers the parts of `parameters` after
/// their update: a rank needs optimizer state for its own parts only.
std::unique_ptr<BucketExchange> make_reduce_scatter_exchange(ExchangeContext context,
                                                             std::vector<Bucket> buckets,
                                                             std::span<float> parameters);

/// All-reduces gradients rounded to `dtype`, f16 or bf16: half the bytes. They are added in float;
/// the sum is rounded once. In f16 a mean over the step's samples is infinite above 511, and a
/// rank's part of one loses bits below 1e-6.
std::unique_ptr<BucketExchange> make_half_exchange(ExchangeContext context,
                                                   std::vector<Bucket> buckets, DType dtype);

/// Sends matrices as products of two thin ones with `rank` columns: power_sgd_exchange.cc.
std::unique_ptr<BucketExchange> make_power_sgd_exchange(ExchangeContext context,
                                                        const std::vector<Bucket>& buckets,
                                                        std::span<const GradientRange> ranges,
                                                        std::size_t rank);

}  // namespace dlaunch
