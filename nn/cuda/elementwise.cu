// One thread per pack of elements, in loops through the whole grid. A thread has read all it needs
// before it writes, so results may lie where the arguments do.
#include "nn/cuda/activation_functions.cuh"
#include "nn/cuda/kernels.h"
#include "nn/cuda/launch.cuh"

namespace dlaunch::nn::cuda {
namespace {

// y = operation(a)
template <typename A, typename Y, typename Operation>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    map_one(std::int64_t count, Operation operation, const A* a, Y* y) {
  for_packs<pack_of<A, Y>()>(count, aligned(a, y), [&]<int kWidth>(std::int64_t i) {
    float values[kWidth];
    load_pack(a + i, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values[k] = operation(values[k]);
    store_pack(y + i, values);
  });
}

// y = operation(a, b)
template <typename A, typename B, typename Y, typename Operation>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    map_two(std::int64_t count, Operation operation, const A* a, const B* b, Y* y) {
  for_packs<pack_of<A, B, Y>()>(count, aligned(a, b, y), [&]<int kWidth>(std::int64_t i) {
    float left[kWidth];
    float right[kWidth];
    load_pack(a + i, left);
    load_pack(b + i, right);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) left[k] = operation(left[k], right[k]);
    store_pack(y + i, left);
  });
}

template <typename A, typename Y, typename Operation>
void start_one(Device& device, const char* name, std::int64_t count, Operation operation,
               const A* a, Y* y) {
  if (count == 0) return;
  launch(device, name, map_one<A, Y, Operation>,
         blocks_for(device, divide_up(count, pack_of<A, Y>())), kThreads, count, operation, a, y);
}

template <typename A, typename B, typename Y, typename Operation>
void start_two(Device& device, const char* name, std::int64_t count, Operation operation,
               const A* a, const B* b, Y* y) {
  if (count == 0) return;
  launch(device, name, map_two<A, B, Y, Operation>,
         blocks_for(device, divide_up(count, pack_of<A, B, Y>())), kThreads, count, operation, a, b,
         y);
}

__global__ void fill_all(std::int64_t count, float value, float* y) {
  for (std::int64_t i = global_thread(); i < count; i += all_threads()) y[i] = value;
}

struct Same {
  __device__ float operator()(float value) const { return value; }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Axpy {
  float alpha;
  __device__ float operator()(float x, float y) const { return y + alpha * x; }
};
struct Scale {
  float factor;
  const float* scale_or_null;
  __device__ float operator()(float x) const {
    return (scale_or_null == nullptr ? factor : factor * *scale_or_null) * x;
  }
};
template <typename Function>
struct Forward {
  Function function;
  __device__ float operator()(float x) const { return function.value(x); }
};
template <typename Function>
struct Backward {
  Function function;
  __device__ float operator()(float x, float dy) const { return function.gradient(x, dy); }
};

}  // namespace

void fill(Device& device, std::int64_t count, float value, float* y) {
  if (count == 0) return;
  launch(device, "fill", fill_all, blocks_for(device, count), kThreads, count, value, y);
}

void convert(Device& device, std::int64_t count, ConstArrayRef from, ArrayRef to) {
  visit_activation(from.dtype, [&]<typename From>() {
    visit_activation(to.dtype, [&]<typename To>() {
      start_one(device, "convert", count, Same{}, as<From>(from), as<To>(to));
    });
  });
}

void add(Device& device, std::int64_t count, ConstArrayRef a, ConstArrayRef b, ArrayRef y) {
  visit_activation(y.dtype, [&]<typename T>() {
    start_two(device, "add", count, Sum{}, as<T>(a), as<T>(b), as<T>(y));
  });
}

void axpy(Device& device, std::int64_t count, float alpha, const float* x, float* y) {
  start_two(device, "axpy", count, Axpy{alpha}, x, y, y);
}

void scale(Device& device, std::int64_t count, float factor, const float* scale_or_null,
           ConstArrayRef x, ArrayRef y) {
  visit_activation(y.dtype, [&]<typename T>() {
    start_one(device, "scale", count, Scale{factor, scale_or_null}, as<T>(x), as<T>(y));
  });
}

void relu(Device& device, std::int64_t count, ConstArrayRef x, ArrayRef y) {
  visit_activation(y.dtype, [&]<typename T>() {
    start_one(device, "relu", count, Forward<Relu>{}, as<T>(x), as<T>(y));
  });
}

void relu_backward(Device& device, std::int64_t count, ConstArrayRef y, ConstArrayRef dy,
                   ArrayRef dx) {
  visit_activation(dx.dtype, [&]<typename T>() {
    start_two(device, "relu backward", count, Backward<Relu>{}, as<T>(y), as<T>(dy), as<T>(dx));
  });
}

void activate(Device& device, Activation activation, std::int64_t count, ConstArrayRef x,
              ArrayRef y) {
  visit_activation(y.dtype, [&]<typename T>() {
    if (activation == Activation::kGelu) {
      start_one(device, "gelu", count, Forward<Gelu>{}, as<T>(x), as<T>(y));
    } else {
      start_one(device, "silu", count, Forward<Silu>{}, as<T>(x), as<T>(y));
    }
  });
}

void activate_backward(Device& device, Activation activation, std::int64_t count, ConstArrayRef x,
                       ConstArrayRef dy, ArrayRef dx) {
  visit_activation(dx.dtype, [&]<typename T>() {
    if (activation == Activation::kGelu) {
      start_two(device, "gelu backward", count, Backward<Gelu>{}, as<T>(x), as<T>(dy), as<T>(dx));
    } else {
      start_two(device, "silu backward", count, Backward<Silu>{}, as<T>(x), as<T>(dy), as<T>(dx));
    }
  });
}

void celu(Device& device, std::int64_t count, float alpha, ConstArrayRef x, ArrayRef y) {
  visit_activation(y.dtype, [&]<typename T>() {
    start_one(device, "celu", count, Forward<Celu>{Celu(alpha)}, as<T>(x), as<T>(y));
  });
}

void celu_backward(Device& device, std::int64_t count, float alpha, ConstArrayRef x,
                   ConstArrayRef dy, ArrayRef dx) {
  visit_activation(dx.dtype, [&]<typename T>() {
    start_two(device, "celu backward", count, Backward<Celu>{Celu(alpha)}, as<T>(x), as<T>(dy),
              as<T>(dx));
  });
}

void accumulate(Device& device, std::int64_t count, ConstArrayRef x, float* y) {
  visit_activation(x.dtype, [&]<typename T>() {
    start_two(device, "accumulate", count, Sum{}, as<T>(x), y, y);
  });
}

}  // namespace dlaunch::nn::cuda
