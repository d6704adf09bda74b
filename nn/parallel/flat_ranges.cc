#include "nn/parallel/flat_ranges.h"

#include <sstream>
#include <string>

#include "nn/parallel/tensor_memory.h"
#include "runtime/comm/objects.h"
#include "runtime/parallel/state_broadcast.h"

namespace dlaunch::nn {
namespace {

/// Parameters and buffers, a line for each.
std::string table_of(const Module& network) {
  std::string table;
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    table += name + " " + tensor.shape().to_string() + " " +
             std::string(to_string(tensor.dtype())) + "\n";
  };
  for (const NamedParameter& each : network.parameters()) add(each.name, each.tensor);
  for (const NamedBuffer& each : network.buffers()) add(each.name, each.tensor);
  return table;
}

/// The same on all ranks. As arrays the networks could be alike although their layers are not.
Status check_alike(Communicator& world, const Module& network) {
  const auto tables = all_gather_bytes(world, table_of(network));
  DLAUNCH_RETURN_IF_ERROR(tables.status());
  for (std::size_t rank = 1; rank < tables->size(); ++rank) {
    if ((*tables)[rank] == tables->front()) continue;
    std::istringstream first(tables->front());
    std::istringstream other((*tables)[rank]);
    std::string expected;
    std::string found;
    do {
      if (!std::getline(first, expected)) expected = "nothing more";
      if (!std::getline(other, found)) found = "nothing more";
    } while (found == expected);
    std::string why = "the network of rank " + std::to_string(rank);
    why += " is another one than that of rank 0: it has ";
    why += found;
    why += " in the place of ";
    why += expected;
    return Status(StatusCode::kMismatch, why);
  }
  return Status();
}

}  // namespace

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
  DLAUNCH_RETURN_IF_ERROR(check_alike(world, network));
  std::vector<Buffer> state{memory_of(parameters.values)};
  for (const NamedBuffer& buffer : network.buffers()) state.push_back(buffer_of(buffer.tensor));
  return broadcast_state(world, state);
}

}  // namespace dlaunch::nn
