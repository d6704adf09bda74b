#include <cmath>

#include "nn/cpu/activation.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/parallel.h"
#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::int64_t kGrain = 4096;  // elements per thread at least: an exponential takes a while

template <typename T>
DLAUNCH_MULTIVERSION void celu_backward_range(std::int64_t count, float alpha, const T* y,
                                              const T* dy, T* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = load(y[i]);
    const float slope = value > 0.0F ? 1.0F : value / alpha + 1.0F;
    store(dx[i], load(dy[i]) * slope);
  }
}

}  // namespace

void celu(std::int64_t count, float alpha, ConstArrayRef x, ArrayRef y) {
  visit_activation(y.dtype, [&]<typename T>() {
    parallel_ranges(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float value = load(as<T>(x)[i]);
        store(as<T>(y)[i], value < 0.0F ? alpha * std::expm1(value / alpha) : value);
      }
    });
  });
}

void celu_backward(std::int64_t count, float alpha, ConstArrayRef y, ConstArrayRef dy,
                   ArrayRef dx) {
  visit_activation(dx.dtype, [&]<typename T>() {
    parallel_ranges(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      celu_backward_range(end - begin, alpha, as<T>(y) + begin, as<T>(dy) + begin,
                          as<T>(dx) + begin);
    });
  });
}

}  // namespace dlaunch::nn::cpu
