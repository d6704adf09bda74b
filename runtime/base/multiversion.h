// DLAUNCH_MULTIVERSION in front of a function compiles it for AVX-512 (x86-64-v4), for AVX2 with
// FMA (x86-64-v3) and for the baseline; the loader takes the best that the CPU has. So binaries
// built on one machine run on another, at full speed on both.
//
// Such a function is a plain loop over plain memory in a .cc file, and calls nothing that is
// neither inlined nor of a vector library. Loops that must become vector instructions say so with
// `#pragma omp simd`.
#pragma once

// The loader's choice runs before ThreadSanitizer is set up and would crash there; clang spells the
// versions differently.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define DLAUNCH_MULTIVERSION \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DLAUNCH_MULTIVERSION
#endif
