// Where tensors lie, for collectives.
#pragma once

#include <cstddef>
#include <span>

#include "nn/core/tensor.h"
#include "runtime/comm/buffer.h"

namespace dlaunch::nn {

/// The f32 values of a tensor, on any device: to be handed on, not to be read or written here.
inline std::span<float> memory_of(const Tensor& tensor) {
  return {tensor.data<float>(), static_cast<std::size_t>(tensor.size())};
}

/// The same of any type.
inline Buffer buffer_of(const Tensor& tensor) {
  return {tensor.memory(), static_cast<std::size_t>(tensor.size()), tensor.dtype()};
}

}  // namespace dlaunch::nn
