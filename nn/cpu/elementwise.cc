// Loops over arrays. The *_range functions are compiled for several instruction sets; the functions
// behind the interface split the work among threads.
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

DLAUNCH_MULTIVERSION void add_range(std::int64_t count, const float* a, const float* b, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

DLAUNCH_MULTIVERSION void axpy_range(std::int64_t count, float alpha, const float* x, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] += alpha * x[i];
}

DLAUNCH_MULTIVERSION void scale_range(std::int64_t count, float factor, const float* x, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = factor * x[i];
}

// Written so that a NaN stays one.
DLAUNCH_MULTIVERSION void relu_range(std::int64_t count, const float* x, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] < 0.0F ? 0.0F : x[i];
}

DLAUNCH_MULTIVERSION void relu_backward_range(std::int64_t count, const float* y, const float* dy,
                                              float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) dx[i] = y[i] > 0.0F ? dy[i] : 0.0F;
}

}  // namespace

void fill(std::int64_t count, float value, float* y) {
  parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    fill_range(end - begin, value, y + begin);
  });
}

void add(std::int64_t count, const float* a, const float* b, float* y) {
  parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    add_range(end - begin, a + begin, b + begin, y + begin);
  });
}

void axpy(std::int64_t count, float alpha, const float* x, float* y) {
  parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    axpy_range(end - begin, alpha, x + begin, y + begin);
  });
}

void scale(std::int64_t count, float factor, const float* x, float* y) {
  parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    scale_range(end - begin, factor, x + begin, y + begin);
  });
}

void relu(std::int64_t count, const float* x, float* y) {
  parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    relu_range(end - begin, x + begin, y + begin);
  });
}

void relu_backward(std::int64_t count, const float* y, const float* dy, float* dx) {
  parallel_ranges(count, kGrain, [=](std::int64_t begin, std::int64_t end) {
    relu_backward_range(end - begin, y + begin, dy + begin, dx + begin);
  });
}

}  // namespace dlaunch::nn::cpu
