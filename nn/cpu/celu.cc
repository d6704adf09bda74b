#include <cmath>

#include "nn/cpu/kernels.h"
#include "nn/cpu/parallel.h"
#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::int64_t kGrain = 4096;  // elements per thread at least: an exponential takes a while

DLAUNCH_MULTIVERSION void celu_backward_range(std::int64_t count, float alpha, const float* y,
                                              const float* dy, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i)
    dx[i] = y[i] > 0.0F ? dy[i] : dy[i] * (y[i] / alpha + 1.0F);
}

}  // namespace

void celu(std::int64_t count, float alpha, const float* x, float* y) {
  parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      y[i] = x[i] < 0.0F ? alpha * std::expm1(x[i] / alpha) : x[i];
  });
}

void celu_backward(std::int64_t count, float alpha, const float* y, const float* dy, float* dx) {
  parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    celu_backward_range(end - begin, alpha, y + begin, dy + begin, dx + begin);
  });
}

}  // namespace dlaunch::nn::cpu
