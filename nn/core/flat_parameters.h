// FlatParameters: all parameters of a network in one contiguous tensor and all their gradients in
// another, so that broadcast, all-reduce and the optimizer work on spans (as llm.c and DDP's
// gradient_as_bucket_view do).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "nn/core/module.h"

namespace dlaunch {
class Communicator;
}

namespace dlaunch::nn {

struct FlatView {
  std::string name;
  std::int64_t offset = 0;  // elements from the beginning of the flat tensors
  std::int64_t count = 0;
  ParameterKind kind = ParameterKind::kWeight;
  Tensor parameter;                 // the module's tensor, now a view of `values`
  std::int64_t image_channels = 0;  // NamedParameter's
};

/// Elements [begin, end) of the flat tensors.
struct FlatPart {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A value; its tensors share memory with the module's parameters.
struct FlatParameters {
  Tensor values;                  // f32 [count]
  Tensor gradients;               // f32 [count]; zeros in the padding, always
  std::vector<FlatView> views;    // in the order of Module::parameters()
  std::size_t backend_bytes = 0;  // of both that the backend has allocated, not a communicator

  /// Gradients are accumulated, so a step begins with zeros.
  void zero_gradients();
};

/// Moves the module's parameters into one tensor and gives each a gradient that is a view into
/// another, zeroed. Each parameter begins at a multiple of 16 elements (64 bytes); the padding
/// between them is zero. The tensors that the module holds stay the same handles.
///
/// With a communicator, both lie in memory from its allocate() if it has room and the backend works
/// in the host's memory: collectives read them in place. They must not be used when it is gone:
/// unflatten_parameters() comes before that.
FlatParameters flatten_parameters(Module& module, Communicator* world = nullptr);

/// Whether the parameter of a view of `flat` still lies there: another flatten_parameters() moves
/// it.
bool is_in_place(const FlatParameters& flat, const FlatView& view);

/// Gives each parameter that still lies in `flat` memory of its own, with its values; it has no
/// gradient then. For lack of memory some stay where they are.
void unflatten_parameters(const FlatParameters& flat) noexcept;

}  // namespace dlaunch::nn
