#include "nn/cpu/optimizer_loops.h"

#include <cmath>

#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {

DLAUNCH_MULTIVERSION void sgd_plain(std::int64_t count, float rate, float decay,
                                    const float* __restrict g, float* __restrict p) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) p[i] -= rate * (g[i] + decay * p[i]);
}

DLAUNCH_MULTIVERSION void sgd_momentum(std::int64_t count, float rate, float decay, float momentum,
                                       const float* __restrict g, float* __restrict v,
                                       float* __restrict p) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    v[i] = momentum * v[i] + (g[i] + decay * p[i]);
    p[i] -= rate * v[i];
  }
}

DLAUNCH_MULTIVERSION void sgd_nesterov(std::int64_t count, float rate, float decay, float momentum,
                                       const float* __restrict g, float* __restrict v,
                                       float* __restrict p) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float d = g[i] + decay * p[i];
    v[i] = momentum * v[i] + d;
    p[i] -= rate * (d + momentum * v[i]);
  }
}

DLAUNCH_MULTIVERSION void adam(std::int64_t count, const AdamFactors& factors,
                               const float* __restrict g, float* __restrict m, float* __restrict s,
                               float* __restrict p) {
  const AdamFactors f = factors;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float kept = f.keep * p[i];
    const float d = g[i] + f.decay * kept;
    m[i] += (1 - f.beta1) * (d - m[i]);
    s[i] = f.beta2 * s[i] + (1 - f.beta2) * d * d;
    p[i] = kept - f.rate * m[i] / (f.root_scale * std::sqrt(s[i]) + f.eps);
  }
}

DLAUNCH_MULTIVERSION double sum_of_squares(std::int64_t count, const float* __restrict x) {
  // Sixteen sums that do not wait for each other; the compiler may not reorder one.
  constexpr std::int64_t kLanes = 16;
  double sums[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(x[i + lane]);
      sums[lane] += value * value;
    }
  }
  double total = 0;
  for (; i < count; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace dlaunch::nn::cpu
