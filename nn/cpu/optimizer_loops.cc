#include "nn/cpu/optimizer_loops.h"

#include <cmath>

#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {

DLAUNCH_MULTIVERSION void sgd_plain(std::int64_t count, const SgdFactors& factors,
                                    const float* __restrict g, float* __restrict p) {
  const SgdFactors f = factors;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) p[i] = nn::sgd_plain(f, g[i], p[i]);
}

DLAUNCH_MULTIVERSION void sgd_momentum(std::int64_t count, const SgdFactors& factors,
                                       const float* __restrict g, float* __restrict v,
                                       float* __restrict p) {
  const SgdFactors f = factors;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    v[i] = sgd_velocity(f, g[i] + f.decay * p[i], v[i]);
    p[i] -= f.rate * v[i];
  }
}

DLAUNCH_MULTIVERSION void sgd_nesterov(std::int64_t count, const SgdFactors& factors,
                                       const float* __restrict g, float* __restrict v,
                                       float* __restrict p) {
  const SgdFactors f = factors;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float d = g[i] + f.decay * p[i];
    v[i] = sgd_velocity(f, d, v[i]);
    p[i] -= f.rate * (d + f.momentum * v[i]);
  }
}

DLAUNCH_MULTIVERSION void adam(std::int64_t count, const AdamFactors& factors,
                               const float* __restrict g, float* __restrict m, float* __restrict s,
                               float* __restrict p) {
  const AdamFactors f = factors;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float kept = f.keep * p[i];
    adam_moments(f, g[i] + f.decay * kept, m[i], s[i]);
    p[i] = adam_parameter(f, kept, m[i], std::sqrt(s[i]));
  }
}

DLAUNCH_MULTIVERSION void move_average(std::int64_t count, float kept, const float* __restrict x,
                                       float* __restrict a) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) a[i] = moved_average(kept, a[i], x[i]);
}

DLAUNCH_MULTIVERSION bool scale_and_check(std::int64_t count, float factor, float* __restrict x) {
  int bad = 0;
#pragma omp simd reduction(| : bad)
  for (std::int64_t i = 0; i < count; ++i) {
    x[i] *= factor;
    bad |= is_finite(x[i]) ? 0 : 1;
  }
  return bad == 0;
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
