#include "nn/optim/sharded_optimizer.h"

#include <algorithm>
#include <utility>

namespace dlaunch::nn {
namespace {

/// The same memory from the part's point of view.
FlatParameters cut(const FlatParameters& whole, const FlatPart& part) {
  const std::int64_t size = part.end - part.begin;
  FlatParameters result{.values = Tensor::view_of(whole.values, part.begin, {size}),
                        .gradients = Tensor::view_of(whole.gradients, part.begin, {size}),
                        .views = {}};
  for (const FlatView& view : whole.views) {
    const std::int64_t begin = std::max(view.offset, part.begin);
    const std::int64_t count = std::min(view.offset + view.count, part.end) - begin;
    if (count <= 0) continue;
    Tensor parameter = Tensor::view_of(whole.values, begin, {count});
    parameter.set_requires_grad(view.parameter.requires_grad());
    result.views.push_back({.name = view.name,
                            .offset = begin - part.begin,
                            .count = count,
                            .kind = view.kind,
                            .parameter = std::move(parameter)});
  }
  return result;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(const FlatParameters& parameters,
                                   const std::vector<FlatPart>& parts, const Make& make)
    : Optimizer(parameters) {
  for (const FlatPart& part : parts) {
    shards_.push_back({part, make(cut(parameters, part))});
    if (shards_.back().optimizer->needs_whole_parameters())
      throw Error("this optimizer needs whole parameters: it cannot be sharded");
  }
}

void ShardedOptimizer::begin_step(double learning_rate) {
  for (const Shard& shard : shards_) shard.optimizer->begin_step(learning_rate);
}

void ShardedOptimizer::set_stem_rate(double learning_rate) {
  for (const Shard& shard : shards_) shard.optimizer->set_stem_rate(learning_rate);
}

void ShardedOptimizer::skip_when(Tensor word) {
  for (const Shard& shard : shards_) shard.optimizer->skip_when(word);
}

void ShardedOptimizer::update(std::int64_t begin, std::int64_t end) {
  const auto inside = [&](const Shard& shard) {
    return shard.part.begin >= begin && shard.part.end <= end;
  };
  std::int64_t missing = end - begin;
  for (const Shard& shard : shards_)
    if (inside(shard)) missing -= shard.part.end - shard.part.begin;
  if (missing != 0)
    throw Error("ShardedOptimizer: elements " + std::to_string(begin) + " to " +
                std::to_string(end) + " are not whole parts of this optimizer");
  for (const Shard& shard : shards_)
    if (inside(shard)) shard.optimizer->update(0, shard.part.end - shard.part.begin);
}

std::size_t ShardedOptimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const Shard& shard : shards_) bytes += shard.optimizer->state_bytes();
  return bytes;
}

}  // namespace dlaunch::nn
