// What a GradientReducer can be told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/parallel/bucket_plan.h"

namespace dlaunch {

/// How gradients are summed (bucket_exchange.h).
enum class GradientExchange : std::uint8_t { kAllReduce, kShard, kFloat16, kBFloat16, kPowerSgd };

struct GradientReducerOptions {
  BucketLimits limits;  // with one rank there is one bucket, of everything
  /// What is done from the second step on. The first is a plain all-reduce, because the order of
  /// gradients is not known yet, unless it is given.
  GradientExchange exchange = GradientExchange::kAllReduce;
  std::size_t plain_steps = 0;     // all-reduced before gradients are compressed: a warm-up
  std::size_t power_sgd_rank = 2;  // columns that PowerSGD sends
  std::span<float> parameters;     // beside the gradients, only for kShard
  /// order() of an earlier run with the same ranges, so that this one repeats it bit by bit. Empty:
  /// found out in the first step.
  std::vector<std::size_t> order;
};

}  // namespace dlaunch
