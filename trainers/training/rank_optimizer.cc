#include "trainers/training/rank_optimizer.h"

#include <utility>

#include "nn/parallel/tensor_memory.h"
#include "runtime/parallel/parts.h"

namespace dlaunch {
namespace {

std::vector<FlatSpan> spans_of(const GradientReducer& reducer) {
  std::vector<FlatSpan> spans;
  for (const Bucket& bucket : reducer.buckets()) spans.push_back(bucket.span);
  return spans;
}

std::vector<nn::NamedTensor> with_prefix(std::vector<nn::NamedTensor> state) {
  for (nn::NamedTensor& item : state) item.name = "optimizer." + item.name;
  return state;
}

/// State number `item` of each part, as parts.h wants it.
PartOf state_of_parts(const nn::ShardedOptimizer& parts, std::size_t item) {
  return [&parts, item](std::size_t index) {
    return memory_of(parts.part(index).flat_state()[item].tensor);
  };
}

}  // namespace

RankOptimizer::RankOptimizer(nn::FlatParameters parameters, const nn::OptimizerOptions& options,
                             bool sharded, Communicator& world)
    : parameters_(std::move(parameters)),
      options_(options),
      world_(world),
      optimizer_(sharded ? nullptr : make_optimizer(parameters_, options_)) {}

void RankOptimizer::begin_step(double learning_rate, double stem_rate) {
  learning_rate_ = learning_rate;
  stem_rate_ = stem_rate;
  if (optimizer_) begin_step_of(*optimizer_);
  if (parts_) begin_step_of(*parts_);
}

void RankOptimizer::begin_step_of(nn::Optimizer& optimizer) const {
  optimizer.set_stem_rate(stem_rate_);
  optimizer.begin_step(learning_rate_);
}

void RankOptimizer::skip_when(nn::Tensor word) {
  skip_ = std::move(word);
  if (optimizer_) optimizer_->skip_when(skip_);
}

void RankOptimizer::update(FlatSpan span, const GradientReducer& reducer) {
  if (!optimizer_ && !parts_) make_parts(reducer);
  nn::Optimizer& optimizer = optimizer_ ? *optimizer_ : *parts_;
  optimizer.update(static_cast<std::int64_t>(span.begin), static_cast<std::int64_t>(span.end));
}

void RankOptimizer::make_parts(const GradientReducer& reducer) {
  std::vector<nn::FlatPart> parts;
  for (const FlatSpan& span : reducer.updated_here())
    parts.push_back({static_cast<std::int64_t>(span.begin), static_cast<std::int64_t>(span.end)});
  parts_ = std::make_unique<nn::ShardedOptimizer>(
      parameters_, parts,
      [&](const nn::FlatParameters& part) { return make_optimizer(part, options_); });
  parts_->skip_when(skip_);
  if (restored_) scatter(spans_of(reducer));
  forget_whole();
  begin_step_of(*parts_);
}

std::size_t RankOptimizer::state_bytes() const {
  if (optimizer_) return optimizer_->state_bytes();
  return parts_ ? parts_->state_bytes() : 0;
}

std::vector<nn::NamedTensor> RankOptimizer::common_state() const {
  return optimizer_ ? with_prefix(optimizer_->state()) : std::vector<nn::NamedTensor>();
}

std::vector<nn::NamedTensor> RankOptimizer::whole_state() {
  if (optimizer_) return {};
  if (!whole_) whole_ = make_optimizer(parameters_, options_);
  return with_prefix(whole_->state());
}

void RankOptimizer::gather(const GradientReducer& reducer) {
  if (optimizer_) return;
  const std::vector<FlatSpan> spans = spans_of(reducer);
  std::vector<nn::NamedTensor> whole;
  if (world_.rank() == 0) {
    whole_ = make_optimizer(parameters_, options_);
    whole = whole_->flat_state();
    // Of any part: they count the same.
    const auto scalars = whole_->scalars();
    for (std::size_t i = 0; i < scalars.size(); ++i)
      copy_values(parts_->part(0).scalars()[i].tensor, scalars[i].tensor);
  }
  for (std::size_t i = 0; i < parts_->part(0).flat_state().size(); ++i)
    throw_if_error(gather_parts(world_, spans, state_of_parts(*parts_, i),
                                whole.empty() ? std::span<float>() : memory_of(whole[i].tensor))
                       .within("checkpoint"));
}

void RankOptimizer::scatter(const std::vector<FlatSpan>& spans) {
  std::vector<nn::NamedTensor> whole;
  if (world_.rank() == 0) whole = whole_->flat_state();
  for (std::size_t i = 0; i < parts_->part(0).flat_state().size(); ++i)
    throw_if_error(
        scatter_parts(world_, spans,
                      whole.empty() ? std::span<const float>() : memory_of(whole[i].tensor),
                      state_of_parts(*parts_, i))
            .within("resume"));
  for (std::size_t i = 0; i < parts_->part(0).scalars().size(); ++i) {
    const nn::Tensor scalar = parts_->part(0).scalars()[i].tensor;
    if (world_.rank() == 0) copy_values(whole_->scalars()[i].tensor, scalar);
    throw_if_error(world_.broadcast(memory_of(scalar), 0).within("resume"));
    for (std::size_t part = 1; part < spans.size(); ++part)
      copy_values(scalar, parts_->part(part).scalars()[i].tensor);
  }
}

}  // namespace dlaunch
