// What kernels have in common that pool NHWC images: rows are pixels, a thread has a pack of
// channels.
#pragma once

#include <cmath>
#include <cstdint>

#include "nn/cuda/row_tiles.cuh"

namespace dlaunch::nn::cuda {

struct Pixel {
  std::int64_t image, row, column;
};

__device__ inline Pixel pixel_at(std::int64_t index, std::int64_t height, std::int64_t width) {
  const std::int64_t line = index / width;
  return {line / height, line % height, index % width};
}

/// Of a window's elements one for each channel of a pack, row by row.
template <int kWidth>
using Places = Elements<std::uint8_t, kWidth>;

/// The maxima of the window of the output's pixel `at`, and their places: the first of all if none
/// is larger than minus infinity; a NaN wins. `x` points to the image's first pixel's pack. kKernel
/// is 0, or the windows' size where none of them reaches beyond the image.
template <int kKernel, int kWidth, typename T>
__device__ Places<kWidth> max_of_window(const PoolGeometry& g, const Pixel& at, const T* x,
                                        float (&maxima)[kWidth]) {
  const int kernel = kKernel > 0 ? kKernel : static_cast<int>(g.kernel);
  const std::int64_t top = at.row * g.stride - g.pad;
  const std::int64_t left = at.column * g.stride - g.pad;
  Places<kWidth> places{};
  bool first = true;
#pragma unroll
  for (int r = 0; r < kernel; ++r) {
#pragma unroll
    for (int c = 0; c < kernel; ++c) {
      const std::int64_t row = top + r;
      const std::int64_t column = left + c;
      const bool inside =
          kKernel > 0 || (row >= 0 && row < g.height && column >= 0 && column < g.width);
      if (!inside) continue;
      float values[kWidth];
      load_pack(x + (row * g.width + column) * g.channels, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const bool wins = first || values[k] > maxima[k] || isnan(values[k]);
        maxima[k] = wins ? values[k] : maxima[k];
        if (wins) places.values[k] = static_cast<std::uint8_t>(r * kernel + c);
      }
      first = false;
    }
  }
  return places;
}

/// `to` may be null.
template <int kWidth>
__device__ void store_places(const Places<kWidth>& places, std::uint8_t* to, std::int64_t offset) {
  if (to != nullptr) write_pack(to + offset, std::bit_cast<Pack<std::uint8_t, kWidth>>(places));
}

}  // namespace dlaunch::nn::cuda
