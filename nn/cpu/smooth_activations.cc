#include "nn/core/smooth_activations.h"

#include <cmath>

#include "nn/cpu/activation.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/parallel.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::int64_t kActivationGrain = 4096;  // elements per thread at least

struct Gelu {
  static float value(float x) { return x * gelu_phi(std::erf(x * kRootHalf)); }
  static float slope(float x) {
    return gelu_slope(x, gelu_phi(std::erf(x * kRootHalf)), std::exp(-0.5F * x * x));
  }
};

struct Silu {
  static float value(float x) { return x * silu_sigmoid(std::exp(-x)); }
  static float slope(float x) { return silu_slope(x, silu_sigmoid(std::exp(-x))); }
};

/// Calls function.operator()<Formulas, T>(begin, end) for ranges of elements of type T.
template <typename Function>
void for_elements(Activation activation, DType dtype, std::int64_t count,
                  const Function& function) {
  visit_activation(dtype, [&]<typename T>() {
    parallel_ranges(count, kActivationGrain, [&](std::int64_t begin, std::int64_t end) {
      if (activation == Activation::kGelu) {
        function.template operator()<Gelu, T>(begin, end);
      } else {
        function.template operator()<Silu, T>(begin, end);
      }
    });
  });
}

}  // namespace

void activate(Activation activation, std::int64_t count, ConstArrayRef x, ArrayRef y) {
  for_elements(activation, y.dtype, count,
               [&]<typename Formulas, typename T>(std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   store(as<T>(y)[i], Formulas::value(load(as<T>(x)[i])));
               });
}

void activate_backward(Activation activation, std::int64_t count, ConstArrayRef x, ConstArrayRef dy,
                       ArrayRef dx) {
  for_elements(activation, dx.dtype, count,
               [&]<typename Formulas, typename T>(std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   store(as<T>(dx)[i], load(as<T>(dy)[i]) * Formulas::slope(load(as<T>(x)[i])));
               });
}

}  // namespace dlaunch::nn::cpu
