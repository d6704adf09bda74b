// Activations of either type, f32 or bf16, for kernels that compute in float.
#pragma once

#include <bit>
#include <cstdint>

#include "nn/core/backend.h"
#include "runtime/base/half.h"

namespace dlaunch::nn::cpu {

inline __attribute__((always_inline)) float load(float value) {
  return value;
}
inline __attribute__((always_inline)) float load(BFloat16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

inline __attribute__((always_inline)) void store(float& to, float value) {
  to = value;
}
/// As BFloat16(value), without a branch, so that loops become vector instructions.
inline __attribute__((always_inline)) void store(BFloat16& to, float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t nan = (word >> 16) | 0x40U;
  const std::uint32_t rounded = (word + 0x7fffU + ((word >> 16) & 1U)) >> 16;
  to.bits = static_cast<std::uint16_t>((word & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

/// Compared as numbers, so false for NaN; in bf16 by bits, which saves the conversion.
inline __attribute__((always_inline)) bool is_negative(float value) {
  return value < 0.0F;
}
inline __attribute__((always_inline)) bool is_negative(BFloat16 value) {
  return static_cast<std::uint16_t>(value.bits - 0x8001U) <= 0x7f7fU;
}
inline __attribute__((always_inline)) bool is_positive(float value) {
  return value > 0.0F;
}
inline __attribute__((always_inline)) bool is_positive(BFloat16 value) {
  return static_cast<std::uint16_t>(value.bits - 1U) <= 0x7f7fU;
}

/// to = keep ? value : 0. Of bits, because loops that copy the class do not become vectors.
inline __attribute__((always_inline)) void keep_if(bool keep, float value, float& to) {
  to = keep ? value : 0.0F;
}
inline __attribute__((always_inline)) void keep_if(bool keep, BFloat16 value, BFloat16& to) {
  to.bits = keep ? value.bits : std::uint16_t{0};
}

/// Calls function.operator()<T>() with the element type of activations.
template <typename Function>
void visit_activation(DType dtype, const Function& function) {
  if (dtype == DType::kBF16) {
    function.template operator()<BFloat16>();
  } else {
    function.template operator()<float>();
  }
}

}  // namespace dlaunch::nn::cpu
