#include "nn/cpu/optimizer_loops.h"

#include <algorithm>
#include <cmath>

#include "nn/cpu/activation.h"
#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {
namespace {

DLAUNCH_MULTIVERSION void move_velocity(std::int64_t count, const SgdFactors& factors,
                                        bool nesterov, const float* __restrict g,
                                        float* __restrict v, float* __restrict u) {
  const SgdFactors f = factors;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    v[i] = sgd_velocity(f, g[i], v[i]);
    u[i] = muon_direction(f, nesterov, g[i], v[i]);
  }
}

template <typename T>
DLAUNCH_MULTIVERSION void scaled_direction(std::int64_t count, const SgdFactors& factors,
                                           bool nesterov, float factor, const float* __restrict g,
                                           const float* __restrict v, T* __restrict x) {
  const SgdFactors f = factors;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    store(x[i], factor * muon_direction(f, nesterov, g[i], v[i]));
}

template <typename T>
DLAUNCH_MULTIVERSION void step_along(std::int64_t count, const SgdFactors& factors,
                                     float norm_factor, const T* __restrict x,
                                     float* __restrict p) {
  const SgdFactors f = factors;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) p[i] = nn::sgd_plain(f, load(x[i]), norm_factor * p[i]);
}

}  // namespace

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

DLAUNCH_MULTIVERSION void move_average(std::int64_t count, float weight, const float* __restrict x,
                                       float* __restrict a) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) a[i] = moved_average(weight, a[i], x[i]);
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

double muon_velocity(std::int64_t begin, std::int64_t end, const SgdFactors& factors, bool nesterov,
                     const float* g, float* v) {
  constexpr std::int64_t kTogether = 1024;  // directions, which stay in the cache
  float u[kTogether];
  double squares = 0;
  for (std::int64_t first = begin; first < end; first += kTogether) {
    const std::int64_t count = std::min(kTogether, end - first);
    move_velocity(count, factors, nesterov, g + first, v + first, u);
    squares += sum_of_squares(count, u);
  }
  return squares;
}

void muon_scaled_direction(std::int64_t begin, std::int64_t end, const SgdFactors& factors,
                           bool nesterov, float factor, const float* g, const float* v,
                           ArrayRef x) {
  visit_activation(x.dtype, [&]<typename T>() {
    scaled_direction(end - begin, factors, nesterov, factor, g + begin, v + begin,
                     as<T>(x) + begin);
  });
}

void muon_step(std::int64_t begin, std::int64_t end, const SgdFactors& factors, float norm_factor,
               ConstArrayRef x, float* p) {
  visit_activation(x.dtype, [&]<typename T>() {
    step_along(end - begin, factors, norm_factor, as<T>(x) + begin, p + begin);
  });
}

}  // namespace dlaunch::nn::cpu
