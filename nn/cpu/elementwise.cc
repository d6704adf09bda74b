// Loops over arrays. The *_range functions are compiled for several instruction sets; the functions
// behind the interface split the work among threads.
#include "nn/cpu/activation.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/parallel.h"
#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::int64_t kGrain = 32768;  // elements per thread at least: about 10 us of work

DLAUNCH_MULTIVERSION void fill_range(std::int64_t count, float value, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = value;
}

template <typename From, typename To>
DLAUNCH_MULTIVERSION void convert_range(std::int64_t count, const From* from, To* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) store(to[i], load(from[i]));
}

template <typename T>
DLAUNCH_MULTIVERSION void add_range(std::int64_t count, const T* a, const T* b, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) store(y[i], load(a[i]) + load(b[i]));
}

DLAUNCH_MULTIVERSION void axpy_range(std::int64_t count, float alpha, const float* x, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] += alpha * x[i];
}

template <typename T>
DLAUNCH_MULTIVERSION void scale_range(std::int64_t count, float factor, const T* x, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) store(y[i], factor * load(x[i]));
}

// Written so that a NaN stays one.
template <typename T>
DLAUNCH_MULTIVERSION void relu_range(std::int64_t count, const T* x, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) keep_if(!is_negative(x[i]), x[i], y[i]);
}

template <typename T>
DLAUNCH_MULTIVERSION void relu_backward_range(std::int64_t count, const T* y, const T* dy, T* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) keep_if(is_positive(y[i]), dy[i], dx[i]);
}

}  // namespace

void fill(std::int64_t count, float value, float* y) {
  parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    fill_range(end - begin, value, y + begin);
  });
}

void convert(std::int64_t count, ConstArrayRef from, ArrayRef to) {
  visit_activation(from.dtype, [&]<typename From>() {
    visit_activation(to.dtype, [&]<typename To>() {
      parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
        convert_range(end - begin, as<From>(from) + begin, as<To>(to) + begin);
      });
    });
  });
}

void add(std::int64_t count, ConstArrayRef a, ConstArrayRef b, ArrayRef y) {
  visit_activation(y.dtype, [&]<typename T>() {
    parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
      add_range(end - begin, as<T>(a) + begin, as<T>(b) + begin, as<T>(y) + begin);
    });
  });
}

void axpy(std::int64_t count, float alpha, const float* x, float* y) {
  parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    axpy_range(end - begin, alpha, x + begin, y + begin);
  });
}

void scale(std::int64_t count, float factor, ConstArrayRef x, ArrayRef y) {
  visit_activation(y.dtype, [&]<typename T>() {
    parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
      scale_range(end - begin, factor, as<T>(x) + begin, as<T>(y) + begin);
    });
  });
}

void relu(std::int64_t count, ConstArrayRef x, ArrayRef y) {
  visit_activation(y.dtype, [&]<typename T>() {
    parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
      relu_range(end - begin, as<T>(x) + begin, as<T>(y) + begin);
    });
  });
}

void relu_backward(std::int64_t count, ConstArrayRef y, ConstArrayRef dy, ArrayRef dx) {
  visit_activation(dx.dtype, [&]<typename T>() {
    parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
      relu_backward_range(end - begin, as<T>(y) + begin, as<T>(dy) + begin, as<T>(dx) + begin);
    });
  });
}

}  // namespace dlaunch::nn::cpu
