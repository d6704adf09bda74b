// Pooling of NHWC images: rows are pixels. Backward gathers: each input pixel asks the windows that
// it lies in, always in the same order, so nothing is cleared and nothing is added at random.
#include "nn/cuda/kernels.h"
#include "nn/cuda/max_pool.cuh"

namespace dlaunch::nn::cuda {
namespace {

constexpr std::int64_t kSummedInTurn = 1024;  // pixels
constexpr int kPoolBlocks = 4;  // that a multiprocessor runs at once, as registers allow

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads, kPoolBlocks)
    max_pool(PoolGeometry g, std::int64_t out_height, std::int64_t out_width, const T* x, T* y,
             std::uint8_t* argmax) {
  const std::int64_t channel = first_channel<kWidth>();
  if (channel >= g.channels) return;
  const std::int64_t pixels = g.n * out_height * out_width;
  for (std::int64_t index = first_row(); index < pixels; index += row_step()) {
    const Pixel at = pixel_at(index, out_height, out_width);
    const T* const image = x + at.image * g.height * g.width * g.channels + channel;
    float maxima[kWidth] = {};
    const Places<kWidth> places = max_of_window<0>(g, at, image, maxima);
    const std::int64_t offset = index * g.channels + channel;
    store_pack(y + offset, maxima);
    store_places(places, argmax, offset);
  }
}

template <int kWidth, typename T>
void start_max_pool(Device& device, const PoolGeometry& g, const T* x, T* y, std::uint8_t* argmax) {
  const std::int64_t height = g.out_height();
  const std::int64_t width = g.out_width();
  const auto [grid, block] =
      row_tiles(device, g.n * height * width, divide_up(g.channels, kWidth), kPoolBlocks);
  launch(device, "max_pool2d", max_pool<kWidth, T>, grid, block, g, height, width, x, y, argmax);
}

// The first window, along one axis, that reaches to `position` in the padded image.
__device__ std::int64_t first_window(const PoolGeometry& g, std::int64_t position) {
  return position < g.kernel ? 0 : (position - g.kernel) / g.stride + 1;
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads, kPoolBlocks)
    max_pool_backward(PoolGeometry g, std::int64_t out_height, std::int64_t out_width, const T* dy,
                      const std::uint8_t* argmax, T* dx) {
  const std::int64_t channel = first_channel<kWidth>();
  if (channel >= g.channels) return;
  const std::int64_t pixels = g.n * g.height * g.width;
  for (std::int64_t index = first_row(); index < pixels; index += row_step()) {
    const Pixel at = pixel_at(index, g.height, g.width);
    const std::int64_t row = at.row + g.pad;
    const std::int64_t column = at.column + g.pad;
    const std::int64_t first_column = first_window(g, column);
    float sums[kWidth] = {};
    for (std::int64_t r = first_window(g, row); r < out_height && r * g.stride <= row; ++r) {
      for (std::int64_t c = first_column; c < out_width && c * g.stride <= column; ++c) {
        const std::int64_t offset =
            ((at.image * out_height + r) * out_width + c) * g.channels + channel;
        const auto own = static_cast<int>((row - r * g.stride) * g.kernel + column - c * g.stride);
        const auto winners = elements_of<std::uint8_t>(read_pack<kWidth>(argmax + offset));
        float gradients[kWidth];
        load_pack(dy + offset, gradients);
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
          if (winners.values[k] == own) sums[k] += gradients[k];
      }
    }
    store_pack(dx + index * g.channels + channel, sums);
  }
}

template <int kWidth, typename T>
void start_max_pool_backward(Device& device, const PoolGeometry& g, const T* dy,
                             const std::uint8_t* argmax, T* dx) {
  const auto [grid, block] =
      row_tiles(device, g.n * g.height * g.width, divide_up(g.channels, kWidth), kPoolBlocks);
  launch(device, "max_pool2d backward", max_pool_backward<kWidth, T>, grid, block, g,
         g.out_height(), g.out_width(), dy, argmax, dx);
}

// Rows are images.
template <typename T>
__global__ void mean_of_images(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                               const T* x, float* y) {
  const std::int64_t channel = first_channel<1>();
  if (channel >= channels) return;
  for (std::int64_t image = first_row(); image < n; image += row_step()) {
    const T* const first = x + image * pixels * channels + channel;
    double sum = 0;  // of sums of blocks, so that errors do not grow with the image
    for (std::int64_t begin = 0; begin < pixels; begin += kSummedInTurn) {
      const std::int64_t end = begin + kSummedInTurn < pixels ? begin + kSummedInTurn : pixels;
      float block = 0;
      for (std::int64_t p = begin; p < end; ++p) block += load(first[p * channels]);
      sum += static_cast<double>(block);
    }
    y[image * channels + channel] = static_cast<float>(sum / static_cast<double>(pixels));
  }
}

template <int kWidth, typename T>
__global__ void mean_of_images_backward(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                                        const float* dy, T* dx) {
  const std::int64_t channel = first_channel<kWidth>();
  if (channel >= channels) return;
  const float scale = 1.0F / static_cast<float>(pixels);
  for (std::int64_t row = first_row(); row < n * pixels; row += row_step()) {
    const float* const from = dy + row / pixels * channels + channel;
    float gradients[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) gradients[k] = from[k] * scale;
    store_pack(dx + row * channels + channel, gradients);
  }
}

template <int kWidth, typename T>
void start_mean_of_images_backward(Device& device, std::int64_t n, std::int64_t pixels,
                                   std::int64_t channels, const float* dy, T* dx) {
  const auto [grid, block] = row_tiles(device, n * pixels, divide_up(channels, kWidth));
  launch(device, "global_avg_pool backward", mean_of_images_backward<kWidth, T>, grid, block, n,
         pixels, channels, dy, dx);
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads, kPoolBlocks)
    window_of_images(WindowGeometry g, const T* x, T* y) {
  const std::int64_t channel = first_channel<kWidth>();
  if (channel >= g.channels) return;
  using Channels = Pack<T, kWidth>;
  const Channels zeros{};
  for_rows<4, Channels>(
      thread_rows<kWidth>(0, g.n * g.out_height * g.out_width, g.channels),
      [&](const RowPack& at, Channels& loaded) {
        const Pixel pixel = pixel_at(at.row, g.out_height, g.out_width);
        const std::int64_t row = pixel.row + g.top;
        const std::int64_t column = pixel.column + g.left;
        const bool inside = row >= 0 && row < g.height && column >= 0 && column < g.width;
        const std::int64_t from = (pixel.image * g.height + row) * g.width + column;
        loaded = inside ? read_pack<kWidth>(x + from * g.channels + channel) : zeros;
      },
      [] {},
      [&](int /*i*/, const RowPack& at, const Channels& loaded) {
        write_pack(y + at.offset, loaded);
      });
}

template <int kWidth, typename T>
void start_window(Device& device, const WindowGeometry& g, const T* x, T* y) {
  const auto [grid, block] = row_tiles(device, g.n * g.out_height * g.out_width,
                                       divide_up(g.channels, kWidth), kPoolBlocks);
  launch(device, "pad2d", window_of_images<kWidth, T>, grid, block, g, x, y);
}

}  // namespace

void window(Device& device, const WindowGeometry& geometry, ConstArrayRef x, ArrayRef y) {
  if (geometry.output().size() == 0) return;
  visit_activation(y.dtype, [&]<typename T>() {
    const T* from = as<T>(x);
    T* to = as<T>(y);
    visit_width<T>([&]<int kWidth>() { start_window<kWidth>(device, geometry, from, to); },
                   geometry.channels, from, to);
  });
}

void max_pool2d(Device& device, const PoolGeometry& geometry, ConstArrayRef x, ArrayRef y,
                std::uint8_t* argmax) {
  if (geometry.output().size() == 0) return;
  visit_activation(y.dtype, [&]<typename T>() {
    const T* from = as<T>(x);
    T* to = as<T>(y);
    visit_width<T>(
        [&]<int kWidth>() { start_max_pool<kWidth>(device, geometry, from, to, argmax); },
        geometry.channels, from, to, argmax);
  });
}

void max_pool2d_backward(Device& device, const PoolGeometry& geometry, ConstArrayRef dy,
                         const std::uint8_t* argmax, ArrayRef dx) {
  if (geometry.n * geometry.height * geometry.width * geometry.channels == 0) return;
  visit_activation(dx.dtype, [&]<typename T>() {
    const T* gradients = as<T>(dy);
    T* to = as<T>(dx);
    visit_width<T>(
        [&]<int kWidth>() {
          start_max_pool_backward<kWidth>(device, geometry, gradients, argmax, to);
        },
        geometry.channels, gradients, to, argmax);
  });
}

void global_avg_pool(Device& device, std::int64_t n, std::int64_t pixels, std::int64_t channels,
                     ConstArrayRef x, float* y) {
  if (n * channels == 0) return;
  const auto [grid, block] = row_tiles(device, n, channels);
  visit_activation(x.dtype, [&, grid = grid, block = block]<typename T>() {
    launch(device, "global_avg_pool", mean_of_images<T>, grid, block, n, pixels, channels, as<T>(x),
           y);
  });
}

void global_avg_pool_backward(Device& device, std::int64_t n, std::int64_t pixels,
                              std::int64_t channels, const float* dy, ArrayRef dx) {
  if (n * pixels * channels == 0) return;
  visit_activation(dx.dtype, [&]<typename T>() {
    T* const to = as<T>(dx);
    visit_width<T>(
        [&]<int kWidth>() {
          start_mean_of_images_backward<kWidth>(device, n, pixels, channels, dy, to);
        },
        channels, to);
  });
}

}  // namespace dlaunch::nn::cuda
