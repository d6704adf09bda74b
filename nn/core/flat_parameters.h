// FlatParameters: all parameters of a network in one contiguous tensor and all their gradients in
// another, so that broadcast, all-reduce and the optimizer work on spans (as llm.c and DDP's
// gradient_as_bucket_view do).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/core/module.h"

namespace dlaunch::nn {

struct FlatView {
  std::string name;
  std::int64_t offset = 0;  // elements from the beginning of the flat tensors
  std::int64_t count = 0;
  ParameterKind kind = ParameterKind::kWeight;
  Tensor parameter;  // the module's tensor, now a view of `values`
};

/// A value; its tensors share memory with the module's parameters.
struct FlatParameters {
  Tensor values;                // f32 [count]
  Tensor gradients;             // f32 [count]; zeros in the padding, always
  std::vector<FlatView> views;  // in the order of Module::parameters()

  /// Gradients are accumulated, so a step begins with zeros.
  void zero_gradients();
};

/// Moves the module's parameters into one tensor and gives each a gradient that is a view into
/// another, zeroed. Each parameter begins at a multiple of 16 elements (64 bytes); the padding
/// between them is zero. The tensors that the module holds stay the same handles. Called once per
/// module, after its construction.
FlatParameters flatten_parameters(Module& module);

}  // namespace dlaunch::nn
