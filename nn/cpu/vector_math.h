// exp, expm1 and erf of floats for loops with `#pragma omp simd`: there they become those of
// glibc's vector library (libmvec), which are within 4 units in the last place; elsewhere, and
// where glibc has none, they are the C library's.
#pragma once

#include <cmath>

// clang knows the pragma but does not call what it promises.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#if __GLIBC_PREREQ(2, 35)
extern "C" {
#pragma omp declare simd notinbranch
float expf(float) noexcept __attribute__((const));
#pragma omp declare simd notinbranch
float expm1f(float) noexcept __attribute__((const));
#pragma omp declare simd notinbranch
float erff(float) noexcept __attribute__((const));
}
#endif
#endif

namespace dlaunch::nn::cpu {

inline float vector_exp(float x) {
  return ::expf(x);
}
inline float vector_expm1(float x) {
  return ::expm1f(x);
}
inline float vector_erf(float x) {
  return ::erff(x);
}

}  // namespace dlaunch::nn::cpu
