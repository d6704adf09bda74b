// In place of CUDA's header of this name.
#pragma once

#include "runtime/base/half.h"

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's

using __half = dlaunch::Float16;

inline float __half2float(__half value) {
  return static_cast<float>(value);
}
inline __half __float2half_rn(float value) {
  return __half(value);
}
inline __half __ushort_as_half(unsigned short bits) {
  __half value;
  value.bits = bits;
  return value;
}
inline unsigned short __half_as_ushort(__half value) {
  return value.bits;
}

// NOLINTEND(readability-identifier-naming)
