// GELU, SiLU and CELU by themselves.
#include <algorithm>

#include "nn/cpu/activation.h"
#include "nn/cpu/activation_functions.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/parallel.h"
#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {
namespace {

// A multiple of all vectors' lengths. Only whole blocks go to threads: the elements beyond the last
// whole vector round otherwise, so which these are must not depend on the number of threads.
constexpr std::int64_t kBlock = 64;
constexpr std::int64_t kGrain = 4096 / kBlock;  // blocks per thread at least

/// Calls work(begin, end) for ranges of elements.
template <typename Work>
void for_ranges(std::int64_t count, const Work& work) {
  parallel_ranges((count + kBlock - 1) / kBlock, kGrain, [&](std::int64_t begin, std::int64_t end) {
    work(begin * kBlock, std::min(count, end * kBlock));
  });
}

template <typename Function, typename T>
DLAUNCH_MULTIVERSION void values_of(const Function& function, std::int64_t count, const T* x,
                                    T* y) {
  const Function of = function;  // no pointer can reach it
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) store(y[i], of.value(load(x[i])));
}

template <typename Function, typename T>
DLAUNCH_MULTIVERSION void gradients_of(const Function& function, std::int64_t count, const T* x,
                                       const T* dy, T* dx) {
  const Function of = function;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) store(dx[i], of.gradient(load(x[i]), load(dy[i])));
}

template <typename Function>
void forward(const Function& function, std::int64_t count, ConstArrayRef x, ArrayRef y) {
  visit_activation(y.dtype, [&]<typename T>() {
    for_ranges(count, [&](std::int64_t begin, std::int64_t end) {
      values_of(function, end - begin, as<T>(x) + begin, as<T>(y) + begin);
    });
  });
}

template <typename Function>
void backward(const Function& function, std::int64_t count, ConstArrayRef x, ConstArrayRef dy,
              ArrayRef dx) {
  visit_activation(dx.dtype, [&]<typename T>() {
    for_ranges(count, [&](std::int64_t begin, std::int64_t end) {
      gradients_of(function, end - begin, as<T>(x) + begin, as<T>(dy) + begin, as<T>(dx) + begin);
    });
  });
}

}  // namespace

void activate(Activation activation, std::int64_t count, ConstArrayRef x, ArrayRef y) {
  if (activation == Activation::kGelu) {
    forward(Gelu{}, count, x, y);
  } else {
    forward(Silu{}, count, x, y);
  }
}

void activate_backward(Activation activation, std::int64_t count, ConstArrayRef x, ConstArrayRef dy,
                       ArrayRef dx) {
  if (activation == Activation::kGelu) {
    backward(Gelu{}, count, x, dy, dx);
  } else {
    backward(Silu{}, count, x, dy, dx);
  }
}

void celu(std::int64_t count, float alpha, ConstArrayRef x, ArrayRef y) {
  forward(Celu{alpha}, count, x, y);
}

void celu_backward(std::int64_t count, float alpha, ConstArrayRef x, ConstArrayRef dy,
                   ArrayRef dx) {
  backward(Celu{alpha}, count, x, dy, dx);
}

}  // namespace dlaunch::nn::cpu
