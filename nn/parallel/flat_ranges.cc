#include "nn/parallel/flat_ranges.h"

#include "nn/parallel/tensor_memory.h"
#include "runtime/parallel/state_broadcast.h"

namespace dlaunch::nn {

std::vector<GradientRange> gradient_ranges(const FlatParameters& parameters) {
  std::vector<GradientRange> ranges;
  for (const FlatView& view : parameters.views) {
    const Shape& shape = view.parameter.shape();
    ranges.push_back({.offset = static_cast<std::size_t>(view.offset),
                      .count = static_cast<std::size_t>(view.count),
                      .rows = shape.rank() > 1 ? static_cast<std::size_t>(shape[0]) : 1});
  }
  return ranges;
}

RangeIndex::RangeIndex(const FlatParameters& parameters) {
  for (std::size_t i = 0; i < parameters.views.size(); ++i)
    by_address_[parameters.views[i].parameter.data<const float>()] = i;
}

std::optional<std::size_t> RangeIndex::find(const Tensor& leaf) const {
  if (leaf.dtype() != DType::kF32) return std::nullopt;
  const auto found = by_address_.find(leaf.data<const float>());
  if (found == by_address_.end()) return std::nullopt;
  return found->second;
}

Status broadcast_network(Communicator& world, const FlatParameters& parameters,
                         const Module& network) {
  std::vector<Buffer> state{memory_of(parameters.values)};
  for (const NamedBuffer& buffer : network.buffers()) state.emplace_back(memory_of(buffer.tensor));
  return broadcast_state(world, state);
}

}  // namespace dlaunch::nn
