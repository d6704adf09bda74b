// What the processor of this machine can do.
#pragma once

namespace dlaunch::testing {

/// Of one that is no x86 it cannot be said: false.
inline bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

}  // namespace dlaunch::testing
