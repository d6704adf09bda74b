#include "nn/cuda/norm_rows.h"

#include "nn/cuda/max_pool.cuh"
#include "nn/cuda/norm_function.cuh"

namespace dlaunch::nn::cuda {
namespace {

__device__ std::int64_t first_row_of_part(const NormExtent& extent) {
  return extent.parts.begin(extent.rows, own_part()) + first_row();
}
__device__ std::int64_t end_of_part(const NormExtent& extent) {
  return extent.parts.begin(extent.rows, own_part() + 1);
}

template <int kWidth, bool kResidual, typename Activation, typename T>
__global__ void normalise_rows(NormExtent extent, const T* x, Affine affine, Activation activation,
                               const T* residual, T* y) {
  const std::int64_t channel = first_channel<kWidth>();
  if (channel >= extent.channels) return;
  affine.enter_part(own_part(), extent.channels);
  NormaliseCoefficients of[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) of[k] = affine.coefficients_of(channel + k);
  struct Row {
    Pack<T, kWidth> x, residual;
  };
  for_rows<kResidual ? 2 : 4, Row>(
      first_row_of_part(extent), end_of_part(extent),
      [&](std::int64_t row, Row& loaded) {
        const std::int64_t offset = row * extent.channels + channel;
        loaded.x = read_pack<kWidth>(x + offset);
        if constexpr (kResidual) loaded.residual = read_pack<kWidth>(residual + offset);
      },
      [&](std::int64_t row, const Row& loaded) {
        float values[kWidth];
        float added[kWidth] = {};
        to_floats(loaded.x, values);
        if constexpr (kResidual) to_floats(loaded.residual, added);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          float value = normalised(values[k], of[k]);
          if constexpr (kResidual) value += added[k];
          values[k] = activation.value(value);
        }
        store_pack(y + row * extent.channels + channel, values);
      });
}

// The gradient of what is normalised, of a pack of channels in any row.
template <int kWidth, typename Activation, typename T>
struct InputGradient {
  struct Row {
    Pack<T, kWidth> dy, x;
  };

  const T* dy;
  const T* x;
  std::int64_t channels;
  std::int64_t channel;  // the first one's
  Activation activation;
  NormaliseCoefficients forward[kWidth];
  BackwardCoefficients of[kWidth];

  __device__ InputGradient(const T* output_gradient, const T* input, std::int64_t all_channels,
                           std::int64_t first, Affine affine, Activation function,
                           const double* count, const double* sums)
      : dy(output_gradient),
        x(input),
        channels(all_channels),
        channel(first),
        activation(function) {
    affine.enter_part(own_part(), channels);
    count += own_part() * norm_statistics_size(channels);
    if (sums != nullptr) sums += own_part() * 2 * channels;
    const double inverse_count = sums == nullptr ? 0 : 1 / *count;
    // No branches here, behind which loads would wait for those before.
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const std::int64_t c = channel + k;
      forward[k] = affine.coefficients_of(c);
      const double s1 = sums == nullptr ? 0 : sums[c];
      const double s2 = sums == nullptr ? 0 : sums[channels + c];
      of[k] = backward_coefficients(affine.means[c], affine.inv_stds[c], affine.gamma_of(c),
                                    inverse_count, s1, s2);
    }
  }
  __device__ std::int64_t offset(std::int64_t row) const {
    return row * channels + channel;
  }
  __device__ void load(std::int64_t row, Row& loaded) const {
    loaded.dy = read_pack<kWidth>(dy + offset(row));
    loaded.x = read_pack<kWidth>(x + offset(row));
  }
  __device__ void make(const Row& loaded, float (&gradients)[kWidth]) const {
    float values[kWidth];
    to_floats(loaded.dy, gradients);
    to_floats(loaded.x, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float dz = activation.gradient(normalised(values[k], forward[k]), gradients[k]);
      gradients[k] = dz * of[k].scale + (values[k] - of[k].shift) * of[k].slope + of[k].offset;
    }
  }
};

template <int kWidth, typename Activation, typename T>
__global__ void backward_rows(NormExtent extent, const T* dy, const T* x, Affine affine,
                              Activation activation, const double* count, const double* sums,
                              T* dx) {
  const std::int64_t channel = first_channel<kWidth>();
  if (channel >= extent.channels) return;
  using Gradient = InputGradient<kWidth, Activation, T>;
  const Gradient gradient(dy, x, extent.channels, channel, affine, activation, count, sums);
  using Row = typename Gradient::Row;
  for_rows<2, Row>(
      first_row_of_part(extent), end_of_part(extent),
      [&](std::int64_t row, Row& loaded) { gradient.load(row, loaded); },
      [&](std::int64_t row, const Row& loaded) {
        float gradients[kWidth];
        gradient.make(loaded, gradients);
        store_pack(dx + gradient.offset(row), gradients);
      });
}

// Writes the pixels of a window, of which each channel's winner gets the gradient and the others 0.
// `dinput` points to the first one's pack, `line` is from a row to the next.
template <int kKernel, int kWidth, typename T>
__device__ void write_window(const float (&gradients)[kWidth], const Places<kWidth>& winners,
                             std::int64_t line, std::int64_t channels, T* dinput) {
#pragma unroll
  for (int r = 0; r < kKernel; ++r) {
#pragma unroll
    for (int c = 0; c < kKernel; ++c) {
      float own[kWidth];
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        own[k] = winners.values[k] == r * kKernel + c ? gradients[k] : 0.0F;
      store_pack(dinput + r * line + c * channels, own);
    }
  }
}

// Where windows lie in the images, of which only some are whole.
struct Windows {
  PoolGeometry pool;
  std::int64_t out_height, out_width;
};

// Writes what one window makes of the gradients behind it, and if it is the last of its line or
// column what is left of the image there, which no window has.
template <int kKernel, int kWidth, typename T>
__device__ void write_behind_window(const Windows& of, std::int64_t window, std::int64_t channel,
                                    const float (&gradients)[kWidth], const Places<kWidth>& winners,
                                    T* dinput) {
  const PoolGeometry& g = of.pool;
  const std::int64_t line = g.width * g.channels;
  const Pixel at = pixel_at(window, of.out_height, of.out_width);
  const std::int64_t top = at.image * g.height + at.row * kKernel;
  T* const first = dinput + (top * g.width + at.column * kKernel) * g.channels + channel;
  write_window<kKernel>(gradients, winners, line, g.channels, first);
  const float zeros[kWidth] = {};
  const std::int64_t rows = at.row + 1 < of.out_height ? kKernel : g.height - at.row * kKernel;
  const std::int64_t columns =
      at.column + 1 < of.out_width ? kKernel : g.width - at.column * kKernel;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = r < kKernel ? kKernel : 0; c < columns; ++c)
      store_pack(first + r * line + c * g.channels, zeros);
}

// Rows are windows.
template <int kKernel, int kWidth, typename Activation, typename T>
__global__ void pooled_backward_rows(Windows windows, NormExtent extent, const T* dy, const T* x,
                                     const std::uint8_t* argmax, Affine affine,
                                     Activation activation, const double* count, const double* sums,
                                     T* dinput) {
  const std::int64_t channel = first_channel<kWidth>();
  if (channel >= extent.channels) return;
  using Gradient = InputGradient<kWidth, Activation, T>;
  const Gradient gradient(dy, x, extent.channels, channel, affine, activation, count, sums);
  struct Row {
    typename Gradient::Row behind;
    Places<kWidth> winners;
  };
  // One at a time: two would take so many registers that only one block fits on a multiprocessor.
  for_rows<1, Row>(
      first_row_of_part(extent), end_of_part(extent),
      [&](std::int64_t row, Row& loaded) {
        gradient.load(row, loaded.behind);
        loaded.winners = load_places<kWidth>(argmax + gradient.offset(row));
      },
      [&](std::int64_t row, const Row& loaded) {
        float gradients[kWidth];
        gradient.make(loaded.behind, gradients);
        write_behind_window<kKernel>(windows, row, channel, gradients, loaded.winners, dinput);
      });
}

template <int kWidth, typename T>
void start_normalise(Device& device, NormExtent extent, const T* x, const NormFunction& function,
                     const T* residual, T* y) {
  const RowTiles tiles = row_tiles(extent.rows, divide_up(extent.channels, kWidth), extent.parts);
  const Affine affine(function, extent.channels);
  const auto start = [&](auto* kernel, const auto& activation) {
    launch(device, "normalise", kernel, tiles.grid, tiles.block, extent, x, affine, activation,
           residual, y);
  };
  if (residual == nullptr) {
    visit_norm_activation(function, [&]<typename Activation>(const Activation& activation) {
      start(normalise_rows<kWidth, false, Activation, T>, activation);
    });
  } else if (function.activation == NormActivation::kRelu) {
    start(normalise_rows<kWidth, true, Relu, T>, Relu{});
  } else {
    start(normalise_rows<kWidth, true, NoActivation, T>, NoActivation{});
  }
}

template <int kWidth, typename T>
void start_backward(Device& device, NormExtent extent, const T* dy, const T* x,
                    const NormFunction& function, const double* sums, T* dx) {
  const RowTiles tiles = row_tiles(extent.rows, divide_up(extent.channels, kWidth), extent.parts);
  const Affine affine(function, extent.channels);
  visit_norm_activation(function, [&]<typename Activation>(const Activation& activation) {
    launch(device, "batch norm backward", backward_rows<kWidth, Activation, T>, tiles.grid,
           tiles.block, extent, dy, x, affine, activation, function.statistics, sums, dx);
  });
}

template <int kKernel, int kWidth, typename T>
void start_pooled_backward(Device& device, const PoolGeometry& pool, std::int64_t parts,
                           const T* dy, const T* x, const std::uint8_t* argmax,
                           const NormFunction& function, const double* sums, T* dinput) {
  const NormExtent extent = extent_behind(pool, parts);
  const RowTiles tiles = row_tiles(extent.rows, divide_up(extent.channels, kWidth), extent.parts);
  const Affine affine(function, pool.channels);
  visit_norm_activation(function, [&]<typename Activation>(const Activation& activation) {
    launch(device, "batch norm and max_pool2d backward",
           pooled_backward_rows<kKernel, kWidth, Activation, T>, tiles.grid, tiles.block,
           Windows{pool, pool.out_height(), pool.out_width()}, extent, dy, x, argmax, affine,
           activation, function.statistics, sums, dinput);
  });
}

}  // namespace

void normalise(Device& device, NormExtent extent, ConstArrayRef x, const NormFunction& function,
               ConstArrayRef residual, ArrayRef y) {
  if (extent.rows == 0) return;
  visit_activation(x.dtype, [&]<typename T>() {
    const T* from = as<T>(x);
    const T* added = as<T>(residual);
    T* to = as<T>(y);
    if (packs_fit<T>(extent.channels, from, added, to)) {
      start_normalise<kPackOf<T>>(device, extent, from, function, added, to);
    } else {
      start_normalise<1>(device, extent, from, function, added, to);
    }
  });
}

void normalise_backward(Device& device, NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                        const NormFunction& function, const double* sums, ArrayRef dx) {
  if (extent.rows == 0) return;
  visit_activation(x.dtype, [&]<typename T>() {
    const T* gradients = as<T>(dy);
    const T* from = as<T>(x);
    T* to = as<T>(dx);
    if (packs_fit<T>(extent.channels, gradients, from, to)) {
      start_backward<kPackOf<T>>(device, extent, gradients, from, function, sums, to);
    } else {
      start_backward<1>(device, extent, gradients, from, function, sums, to);
    }
  });
}

void pooled_normalise_backward(Device& device, const PoolGeometry& pool, std::int64_t parts,
                               ConstArrayRef dy, ConstArrayRef x, const std::uint8_t* argmax,
                               const NormFunction& function, const double* sums, ArrayRef dinput) {
  if (pool.output().size() == 0) return;
  visit_activation(x.dtype, [&]<typename T>() {
    const auto start = [&]<int kKernel>() {
      if (packs_fit<T>(pool.channels, as<T>(dy), as<T>(x), argmax, as<T>(dinput))) {
        start_pooled_backward<kKernel, kPackOf<T>>(device, pool, parts, as<T>(dy), as<T>(x), argmax,
                                                   function, sums, as<T>(dinput));
      } else {
        start_pooled_backward<kKernel, 1>(device, pool, parts, as<T>(dy), as<T>(x), argmax,
                                          function, sums, as<T>(dinput));
      }
    };
    if (pool.kernel == 2) {
      start.template operator()<2>();
    } else {
      start.template operator()<3>();
    }
  });
}

}  // namespace dlaunch::nn::cuda
