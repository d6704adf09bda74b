// Checks of arguments that the operations share. All throw Error.
#pragma once

#include <string>
#include <string_view>

#include "nn/core/tensor.h"

namespace dlaunch::nn {

/// `operation`: `what` is `tensor`'s shape, but it must have `rank` dimensions.
inline void require_rank(std::string_view operation, std::string_view what, const Tensor& tensor,
                         int rank) {
  if (tensor.shape().rank() != rank) {
    throw Error(std::string(operation) + ": " + std::string(what) + " " +
                tensor.shape().to_string() + " must have " + std::to_string(rank) + " dimensions");
  }
}

inline void require_f32(std::string_view operation, std::string_view what, const Tensor& tensor) {
  if (tensor.dtype() != DType::kF32) {
    throw Error(std::string(operation) + ": " + std::string(what) + " is " +
                std::string(to_string(tensor.dtype())) + ", not f32");
  }
}

/// Activations: f32, bf16 or f16.
inline void require_activation(std::string_view operation, const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    throw Error(std::string(operation) + ": input is " + std::string(to_string(dtype)) +
                ", none of f32, bf16, f16");
  }
}

inline void require_same_dtype(std::string_view operation, const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) {
    throw Error(std::string(operation) + ": types " + std::string(to_string(a.dtype())) + " and " +
                std::string(to_string(b.dtype())) + " differ");
  }
}

inline void require_same_shape(std::string_view operation, const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) {
    throw Error(std::string(operation) + ": shapes " + a.shape().to_string() + " and " +
                b.shape().to_string() + " differ");
  }
}

}  // namespace dlaunch::nn
