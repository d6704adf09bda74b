// A network's flat parameters as the data-parallel engine (runtime/parallel) takes them.
#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <vector>

#include "nn/core/flat_parameters.h"
#include "runtime/comm/communicator.h"
#include "runtime/parallel/bucket_plan.h"

namespace dlaunch::nn {

/// A range for each parameter, in their order.
std::vector<GradientRange> gradient_ranges(const FlatParameters& parameters);

/// Which of these ranges is a leaf's, as backward() tells of it.
class RangeIndex {
 public:
  explicit RangeIndex(const FlatParameters& parameters);
  /// Nothing if the leaf is none of the parameters.
  std::optional<std::size_t> find(const Tensor& leaf) const;

 private:
  std::unordered_map<const float*, std::size_t> by_address_;
};

/// Gives all ranks rank 0's parameters and buffers (running statistics). Blocks. kMismatch on all
/// ranks if their networks differ in names, shapes or types; then nothing has failed.
Status broadcast_network(Communicator& world, const FlatParameters& parameters,
                         const Module& network);

}  // namespace dlaunch::nn
