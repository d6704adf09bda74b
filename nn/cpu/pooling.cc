// Pooling of NHWC images: the inner loops run over blocks of channels, which become vectors.
#include <algorithm>
#include <limits>

#include "nn/cpu/activation.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/parallel.h"
#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;        // outputs per thread at least
constexpr std::int64_t kSummedInTurn = 1024;  // pixels
constexpr std::int64_t kMeansTogether = 64;   // channels

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

// How values compare: by keys, of which a greater one wins, and NaN in any case.
template <typename T>
struct Order;

template <>
struct Order<float> {
  using Key = float;
  using Index = std::int32_t;                 // as wide as the key
  static constexpr std::int64_t kLanes = 16;  // a vector
  static constexpr Key kLeast = -std::numeric_limits<float>::infinity();

  static inline __attribute__((always_inline)) Key key(float value) { return value; }
  static inline __attribute__((always_inline)) bool wins(Key key, Key best) {
    return key > best || key != key;
  }
  static inline __attribute__((always_inline)) void store(float& to, Key key) { to = key; }
};

// Bits that compare as integers, since comparing as floats would mean twice as many vectors.
template <>
struct Order<BFloat16> {
  using Key = std::int16_t;
  using Index = std::int16_t;
  static constexpr std::int64_t kLanes = 32;
  static constexpr Key kLeast = std::numeric_limits<Key>::min();

  static inline __attribute__((always_inline)) Key key(BFloat16 value) {
    const auto bits = static_cast<Key>(value.bits);
    const auto ordered = static_cast<Key>(bits < 0 ? bits ^ 0x7fff : bits);
    return (bits & 0x7fff) > 0x7f80 ? std::numeric_limits<Key>::max() : ordered;
  }
  static inline __attribute__((always_inline)) bool wins(Key key, Key best) { return key > best; }
  static inline __attribute__((always_inline)) void store(BFloat16& to, Key key) {
    to.bits = static_cast<std::uint16_t>(key < 0 ? key ^ 0x7fff : key);
  }
};

// The maximum of one window for `lanes` channels; x and y point to the first of them.
template <typename T>
inline __attribute__((always_inline)) void max_of_window(const PoolGeometry& g, const Window& w,
                                                         std::int64_t lanes, const T* x, T* y,
                                                         std::uint8_t* argmax) {
  using Index = typename Order<T>::Index;
  typename Order<T>::Key best[Order<T>::kLanes];
  Index where[Order<T>::kLanes];
  for (std::int64_t l = 0; l < Order<T>::kLanes; ++l) {
    best[l] = Order<T>::kLeast;
    where[l] = static_cast<Index>(w.row_begin * g.kernel + w.column_begin);
  }
  for (std::int64_t r = w.row_begin; r < w.row_end; ++r) {
    for (std::int64_t c = w.column_begin; c < w.column_end; ++c) {
      const T* pixel = x + ((w.top + r) * g.width + w.left + c) * g.channels;
      const auto index = static_cast<Index>(r * g.kernel + c);
#pragma omp simd
      for (std::int64_t l = 0; l < lanes; ++l) {
        const auto key = Order<T>::key(pixel[l]);
        const bool wins = Order<T>::wins(key, best[l]);
        best[l] = wins ? key : best[l];
        where[l] = wins ? index : where[l];
      }
    }
  }
#pragma omp simd
  for (std::int64_t l = 0; l < lanes; ++l) Order<T>::store(y[l], best[l]);
  if (argmax != nullptr) {
#pragma omp simd
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
      for (; c + Order<T>::kLanes <= g.channels; c += Order<T>::kLanes) {
        max_of_window(g, w, Order<T>::kLanes, x + c, y + c,
                      argmax != nullptr ? argmax + c : nullptr);
      }
      if (c < g.channels) {
        max_of_window(g, w, g.channels - c, x + c, y + c, argmax != nullptr ? argmax + c : nullptr);
      }
      y += g.channels;
      if (argmax != nullptr) argmax += g.channels;
    }
  }
}

// Whether every pixel is in exactly one window.
bool is_tiling(const PoolGeometry& g) {
  return g.stride == g.kernel && g.pad == 0 && g.height % g.kernel == 0 && g.width % g.kernel == 0;
}

// kTiling: is_tiling(); otherwise dx is to be added to.
template <bool kTiling, typename T>
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
            if constexpr (kTiling)
              keep_if(argmax[i] == index, dy[i], pixel[i]);
            else
              store(pixel[i], load(pixel[i]) + (argmax[i] == index ? load(dy[i]) : 0.0F));
          }
        }
      }
      dy += g.channels;
      argmax += g.channels;
    }
  }
}

// In float over blocks of pixels, and in double over blocks: errors do not grow with the image.
template <typename T>
DLAUNCH_MULTIVERSION void mean_of_image(std::int64_t pixels, std::int64_t channels, const T* x,
                                        float* y) {
  for (std::int64_t first = 0; first < channels; first += kMeansTogether) {
    const std::int64_t lanes = std::min(kMeansTogether, channels - first);
    double sums[kMeansTogether] = {};
    for (std::int64_t begin = 0; begin < pixels; begin += kSummedInTurn) {
      const std::int64_t end = std::min(pixels, begin + kSummedInTurn);
      float block[kMeansTogether] = {};
      for (std::int64_t p = begin; p < end; ++p) {
        const T* const pixel = x + p * channels + first;
#pragma omp simd
        for (std::int64_t l = 0; l < lanes; ++l) block[l] += load(pixel[l]);
      }
      for (std::int64_t l = 0; l < lanes; ++l) sums[l] += static_cast<double>(block[l]);
    }
    for (std::int64_t l = 0; l < lanes; ++l) {
      y[first + l] = static_cast<float>(sums[l] / static_cast<double>(pixels));
    }
  }
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

template <typename T>
void window_of_image(const WindowGeometry& g, const T* x, T* y) {
  const std::int64_t first = std::clamp<std::int64_t>(-g.left, 0, g.out_width);
  const std::int64_t last = std::clamp<std::int64_t>(g.width - g.left, first, g.out_width);
  for (std::int64_t r = 0; r < g.out_height; ++r) {
    T* const row = y + r * g.out_width * g.channels;
    const std::int64_t from = r + g.top;
    const bool inside = from >= 0 && from < g.height && last > first;
    const std::int64_t begin = inside ? first * g.channels : 0;
    const std::int64_t end = inside ? last * g.channels : 0;
    std::fill(row, row + begin, T{});
    if (inside) {
      const T* const source = x + (from * g.width + first + g.left) * g.channels;
      std::copy(source, source + (end - begin), row + begin);
    }
    std::fill(row + end, row + g.out_width * g.channels, T{});
  }
}

}  // namespace

void window(const WindowGeometry& geometry, ConstArrayRef x, ArrayRef y) {
  const std::int64_t in = geometry.height * geometry.width * geometry.channels;
  const std::int64_t out = geometry.out_height * geometry.out_width * geometry.channels;
  visit_activation(y.dtype, [&]<typename T>() {
    for_each_image(geometry.n, out, [&](std::int64_t i) {
      window_of_image(geometry, as<T>(x) + i * in, as<T>(y) + i * out);
    });
  });
}

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
  const bool tiling = is_tiling(geometry);
  visit_activation(dx.dtype, [&]<typename T>() {
    for_each_image(geometry.n, out, [&](std::int64_t i) {
      T* image = as<T>(dx) + i * in;
      const T* gradient = as<T>(dy) + i * out;
      if (tiling) return max_pool_image_backward<true>(geometry, gradient, argmax + i * out, image);
      std::fill(image, image + in, T{});
      max_pool_image_backward<false>(geometry, gradient, argmax + i * out, image);
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
