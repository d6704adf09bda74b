// Pooling of NHWC images: the inner loops run over blocks of 16 channels, which become vectors.
#include <algorithm>
#include <limits>

#include "nn/cpu/activation.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/parallel.h"
#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kGrain = 16384;  // outputs per thread at least

// The part of the window at one output position that lies within the image.
struct Window {
  std::int64_t top, left;  // of the whole window, may be negative
  std::int64_t row_begin, row_end, column_begin, column_end;  // within the window
};

inline __attribute__((always_inline)) Window window_at(const PoolGeometry& g, std::int64_t row,
                                                       std::int64_t column) {
  Window w{};
  w.top = row * g.stride - g.pad;
  w.left = column * g.stride - g.pad;
  w.row_begin = w.top < 0 ? -w.top : 0;
  w.column_begin = w.left < 0 ? -w.left : 0;
  w.row_end = g.height - w.top < g.kernel ? g.height - w.top : g.kernel;
  w.column_end = g.width - w.left < g.kernel ? g.width - w.left : g.kernel;
  return w;
}

// The maximum of one window for `lanes` channels; x and y point to the first of them.
template <typename T>
inline __attribute__((always_inline)) void max_of_window(const PoolGeometry& g, const Window& w,
                                                         std::int64_t lanes, const T* x, T* y,
                                                         std::uint8_t* argmax) {
  float best[kLanes];
  std::int32_t where[kLanes];
  for (std::int64_t l = 0; l < kLanes; ++l) {
    best[l] = -std::numeric_limits<float>::infinity();
    where[l] = static_cast<std::int32_t>(w.row_begin * g.kernel + w.column_begin);
  }
  for (std::int64_t r = w.row_begin; r < w.row_end; ++r) {
    for (std::int64_t c = w.column_begin; c < w.column_end; ++c) {
      const T* pixel = x + ((w.top + r) * g.width + w.left + c) * g.channels;
      const auto index = static_cast<std::int32_t>(r * g.kernel + c);
#pragma omp simd
      for (std::int64_t l = 0; l < lanes; ++l) {
        const float value = load(pixel[l]);
        const bool wins = value > best[l] || value != value;  // a NaN wins
        best[l] = wins ? value : best[l];
        where[l] = wins ? index : where[l];
      }
    }
  }
  for (std::int64_t l = 0; l < lanes; ++l) store(y[l], best[l]);
  if (argmax != nullptr) {
    for (std::int64_t l = 0; l < lanes; ++l) argmax[l] = static_cast<std::uint8_t>(where[l]);
  }
}

template <typename T>
DLAUNCH_MULTIVERSION void max_pool_image(const PoolGeometry& g, const T* x, T* y,
                                         std::uint8_t* argmax) {
  for (std::int64_t row = 0; row < g.out_height(); ++row) {
    for (std::int64_t column = 0; column < g.out_width(); ++column) {
      const Window w = window_at(g, row, column);
      std::int64_t c = 0;
      for (; c + kLanes <= g.channels; c += kLanes) {
        max_of_window(g, w, kLanes, x + c, y + c, argmax != nullptr ? argmax + c : nullptr);
      }
      if (c < g.channels) {
        max_of_window(g, w, g.channels - c, x + c, y + c, argmax != nullptr ? argmax + c : nullptr);
      }
      y += g.channels;
      if (argmax != nullptr) argmax += g.channels;
    }
  }
}

template <typename T>
DLAUNCH_MULTIVERSION void max_pool_image_backward(const PoolGeometry& g, const T* dy,
                                                  const std::uint8_t* argmax, T* dx) {
  for (std::int64_t row = 0; row < g.out_height(); ++row) {
    for (std::int64_t column = 0; column < g.out_width(); ++column) {
      const Window w = window_at(g, row, column);
      for (std::int64_t r = w.row_begin; r < w.row_end; ++r) {
        for (std::int64_t c = w.column_begin; c < w.column_end; ++c) {
          T* pixel = dx + ((w.top + r) * g.width + w.left + c) * g.channels;
          const auto index = static_cast<std::uint8_t>(r * g.kernel + c);
#pragma omp simd
          for (std::int64_t i = 0; i < g.channels; ++i) {
            store(pixel[i], load(pixel[i]) + (argmax[i] == index ? load(dy[i]) : 0.0F));
          }
        }
      }
      dy += g.channels;
      argmax += g.channels;
    }
  }
}

template <typename T>
DLAUNCH_MULTIVERSION void mean_of_image(std::int64_t pixels, std::int64_t channels, const T* x,
                                        float* y) {
  for (std::int64_t c = 0; c < channels; ++c) y[c] = 0.0F;
  for (std::int64_t p = 0; p < pixels; ++p, x += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) y[c] += load(x[c]);
  }
  const float scale = 1.0F / static_cast<float>(pixels);
#pragma omp simd
  for (std::int64_t c = 0; c < channels; ++c) y[c] *= scale;
}

template <typename T>
DLAUNCH_MULTIVERSION void mean_of_image_backward(std::int64_t pixels, std::int64_t channels,
                                                 const float* dy, T* dx) {
  const float scale = 1.0F / static_cast<float>(pixels);
  for (std::int64_t p = 0; p < pixels; ++p, dx += channels) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) store(dx[c], dy[c] * scale);
  }
}

// Calls function(image index) for all n images.
template <typename Function>
void for_each_image(std::int64_t n, std::int64_t size, const Function& function) {
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, size));
  parallel_ranges(n, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) function(i);
  });
}

}  // namespace

void max_pool2d(const PoolGeometry& geometry, ConstArrayRef x, ArrayRef y, std::uint8_t* argmax) {
  const std::int64_t in = geometry.height * geometry.width * geometry.channels;
  const std::int64_t out = geometry.out_height() * geometry.out_width() * geometry.channels;
  visit_activation(y.dtype, [&]<typename T>() {
    for_each_image(geometry.n, out, [&](std::int64_t i) {
      max_pool_image(geometry, as<T>(x) + i * in, as<T>(y) + i * out,
                     argmax != nullptr ? argmax + i * out : nullptr);
    });
  });
}

void max_pool2d_backward(const PoolGeometry& geometry, ConstArrayRef dy, const std::uint8_t* argmax,
                         ArrayRef dx) {
  const std::int64_t in = geometry.height * geometry.width * geometry.channels;
  const std::int64_t out = geometry.out_height() * geometry.out_width() * geometry.channels;
  visit_activation(dx.dtype, [&]<typename T>() {
    for_each_image(geometry.n, out, [&](std::int64_t i) {
      T* image = as<T>(dx) + i * in;
      std::fill(image, image + in, T{});
      max_pool_image_backward(geometry, as<T>(dy) + i * out, argmax + i * out, image);
    });
  });
}

void global_avg_pool(std::int64_t n, std::int64_t pixels, std::int64_t channels, ConstArrayRef x,
                     float* y) {
  visit_activation(x.dtype, [&]<typename T>() {
    for_each_image(n, pixels * channels, [&](std::int64_t i) {
      mean_of_image(pixels, channels, as<T>(x) + i * pixels * channels, y + i * channels);
    });
  });
}

void global_avg_pool_backward(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                              const float* dy, ArrayRef dx) {
  visit_activation(dx.dtype, [&]<typename T>() {
    for_each_image(n, pixels * channels, [&](std::int64_t i) {
      mean_of_image_backward(pixels, channels, dy + i * channels,
                             as<T>(dx) + i * pixels * channels);
    });
  });
}

}  // namespace dlaunch::nn::cpu
