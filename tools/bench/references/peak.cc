#include "tools/bench/references/peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dlaunch::bench {

#if defined(__x86_64__)
namespace {

// Enough to hide the latency of a multiply-add on two units, and no more than there are registers.
constexpr int kChains = 12;

// The empty asm after each step: nobody reads the sums, but the compiler must not know.

__attribute__((target("avx512f"))) void fp32_avx512(std::uint64_t rounds) {
  __m512 sums[kChains] = {};
  const __m512 half = _mm512_set1_ps(0.5F);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(sum, half, half);
      asm volatile("" : "+v"(sum));
    }
  }
}

__attribute__((target("avx2,fma"))) void fp32_avx2(std::uint64_t rounds) {
  __m256 sums[kChains] = {};
  const __m256 half = _mm256_set1_ps(0.5F);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(sum, half, half);
      asm volatile("" : "+x"(sum));
    }
  }
}

void fp32_sse(std::uint64_t rounds) {
  __m128 sums[kChains] = {};
  const __m128 half = _mm_set1_ps(0.5F);
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (__m128& sum : sums) {
      sum = _mm_add_ps(_mm_mul_ps(sum, half), half);
      asm volatile("" : "+x"(sum));
    }
  }
}

__attribute__((target("avx512f,avx512bf16"))) void bf16_avx512(std::uint64_t rounds) {
  __m512 sums[kChains] = {};
  const __m512bh factors = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-6F), _mm512_set1_ps(1e-6F));
  for (; rounds > 0; --rounds) {
#pragma GCC unroll 12
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, factors, factors);
      asm volatile("" : "+v"(sum));
    }
  }
}

}  // namespace

std::vector<PeakKernel> peak_kernels() {
  // A multiply-add is two operations.
  const auto kernel = [](const char* type, const char* instructions, int multiply_adds,
                         void (*run)(std::uint64_t)) {
    return PeakKernel{type, instructions, 2.0 * multiply_adds * kChains, run};
  };
  std::vector<PeakKernel> kernels;
  if (__builtin_cpu_supports("avx512f") != 0) {
    kernels.push_back(kernel("fp32", "AVX-512", 16, fp32_avx512));
  } else if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
    kernels.push_back(kernel("fp32", "AVX2 FMA", 8, fp32_avx2));
  } else {
    kernels.push_back(kernel("fp32", "SSE", 4, fp32_sse));
  }
  if (__builtin_cpu_supports("avx512bf16") != 0) {
    kernels.push_back(kernel("bf16", "AVX512-BF16", 32, bf16_avx512));
  }
  return kernels;
}
#else
std::vector<PeakKernel> peak_kernels() {
  return {};
}
#endif

}  // namespace dlaunch::bench
