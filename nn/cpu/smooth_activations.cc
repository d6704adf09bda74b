#include "nn/cpu/activation.h"
#include "nn/cpu/activation_functions.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/parallel.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::int64_t kActivationGrain = 4096;  // elements per thread at least

/// Calls function.operator()<A, T>(begin, end) for ranges of elements of type T.
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
               [&]<typename A, typename T>(std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   store(as<T>(y)[i], A::value(load(as<T>(x)[i])));
               });
}

void activate_backward(Activation activation, std::int64_t count, ConstArrayRef x, ConstArrayRef dy,
                       ArrayRef dx) {
  for_elements(activation, dx.dtype, count,
               [&]<typename A, typename T>(std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   store(as<T>(dx)[i], A::gradient(load(as<T>(x)[i]), load(as<T>(dy)[i])));
               });
}

}  // namespace dlaunch::nn::cpu
