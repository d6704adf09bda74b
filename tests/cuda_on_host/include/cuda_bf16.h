// In place of CUDA's header of this name.
#pragma once

#include "runtime/base/half.h"

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's

using __nv_bfloat16 = dlaunch::BFloat16;

inline float __bfloat162float(__nv_bfloat16 value) {
  return static_cast<float>(value);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  return __nv_bfloat16(value);
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16 value;
  value.bits = bits;
  return value;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
  return value.bits;
}

// NOLINTEND(readability-identifier-naming)
