// Arrays of halves as floats, for what stands in for cuDNN and cuBLAS.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"

namespace dlaunch::cuda_on_host {

/// Calls function.operator()<T>() for an element type of activations.
template <typename Function>
void visit_element(DType dtype, const Function& function) {
  if (dtype == DType::kBF16) {
    function.template operator()<BFloat16>();
  } else if (dtype == DType::kF16) {
    function.template operator()<Float16>();
  } else {
    function.template operator()<float>();
  }
}

inline std::vector<float> widened(const void* values, DType dtype, std::size_t count) {
  std::vector<float> wide(count);
  visit_element(dtype, [&]<typename T>() {
    for (std::size_t i = 0; i < count; ++i)
      wide[i] = static_cast<float>(static_cast<const T*>(values)[i]);
  });
  return wide;
}

inline void narrow(std::span<const float> wide, void* values, DType dtype) {
  visit_element(dtype, [&]<typename T>() {
    for (std::size_t i = 0; i < wide.size(); ++i)
      static_cast<T*>(values)[i] = static_cast<T>(wide[i]);
  });
}

}  // namespace dlaunch::cuda_on_host
