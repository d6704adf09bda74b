// The passes that write every row: the results of forward and of backward.
#include "nn/cuda/max_pool.cuh"
#include "nn/cuda/norm_function.cuh"
#include "nn/cuda/norm_passes.h"

namespace dlaunch::nn::cuda {
namespace {

// Blocks that a multiprocessor runs at once, as registers allow.
constexpr int kNormaliseBlocks = 4;
constexpr int kBackwardBlocks = 3;
constexpr int kPooledBackwardBlocks = 2;

// Of the block's part.
template <int kWidth>
__device__ ThreadRows rows_from_end(const NormExtent& extent) {
  return thread_rows_from_end<kWidth>(extent.parts.begin(extent.rows, own_part()),
                                      extent.parts.begin(extent.rows, own_part() + 1),
                                      extent.channels);
}

template <int kWidth, bool kResidual, typename Activation, typename T>
__global__ void __launch_bounds__(kThreads, kNormaliseBlocks)
    normalise_rows(NormExtent extent, const T* x, Affine affine, Activation activation,
                   const T* residual, T* y) {
  affine = affine.of_part(own_part(), extent.channels);
  NormaliseCoefficients of[kWidth];
  struct Row {
    Pack<T, kWidth> x, residual;
  };
  for_rows<kResidual ? 2 : 4, Row>(
      rows_from_end<kWidth>(extent),
      [&](const RowPack& at, Row& loaded) {
        loaded.x = read_pack<kWidth>(x + at.offset);
        if constexpr (kResidual) loaded.residual = read_pack<kWidth>(residual + at.offset);
      },
      [&] {
        make_for_block(
            extent.channels, [&](std::int64_t channel) { return affine.coefficients_of(channel); },
            of);
      },
      [&](int /*i*/, const RowPack& at, const Row& loaded) {
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
        store_pack(y + at.offset, values);
      });
}

// The gradient of what is normalised, of a pack of channels in any row.
template <int kWidth, typename Activation, typename T>
struct InputGradient {
  struct Row {
    Pack<T, kWidth> dy, x;
  };
  // dx = dz forward.scale + (x - forward.shift) slope + offset
  struct Coefficients {
    NormaliseCoefficients forward;
    float slope, offset;
  };

  const T* dy;
  const T* x;
  Activation activation;
  Coefficients of[kWidth];

  __device__ InputGradient(const T* output_gradient, const T* input, Activation function)
      : dy(output_gradient), x(input), activation(function) {}

  __device__ void load(const RowPack& at, Row& loaded) const {
    loaded.dy = read_pack<kWidth>(dy + at.offset);
    loaded.x = read_pack<kWidth>(x + at.offset);
  }
  /// By all threads of a block.
  __device__ void prepare(std::int64_t channels, Affine affine, const double* count,
                          const double* sums) {
    affine = affine.of_part(own_part(), channels);
    count += own_part() * norm_statistics_size(channels);
    if (sums != nullptr) sums += own_part() * 2 * channels;
    make_for_block(
        channels,
        [&](std::int64_t c) {
          const BackwardCoefficients backward =
              sums == nullptr
                  ? BackwardCoefficients{}
                  : backward_coefficients(affine.means[c], affine.inv_stds[c], affine.gamma_of(c),
                                          1 / *count, sums[c], sums[channels + c]);
          return Coefficients{affine.coefficients_of(c), backward.slope, backward.offset};
        },
        of);
  }
  __device__ void make(const Row& loaded, float (&gradients)[kWidth]) const {
    float values[kWidth];
    to_floats(loaded.dy, gradients);
    to_floats(loaded.x, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const NormaliseCoefficients& forward = of[k].forward;
      const float dz = activation.gradient(normalised(values[k], forward), gradients[k]);
      gradients[k] = dz * forward.scale + (values[k] - forward.shift) * of[k].slope + of[k].offset;
    }
  }
};

template <int kWidth, typename Activation, typename T>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks)
    backward_rows(NormExtent extent, const T* dy, const T* x, Affine affine, Activation activation,
                  const double* count, const double* sums, T* dx) {
  using Gradient = InputGradient<kWidth, Activation, T>;
  Gradient gradient(dy, x, activation);
  using Row = typename Gradient::Row;
  for_rows<2, Row>(
      rows_from_end<kWidth>(extent),
      [&](const RowPack& at, Row& loaded) { gradient.load(at, loaded); },
      [&] { gradient.prepare(extent.channels, affine, count, sums); },
      [&](int /*i*/, const RowPack& at, const Row& loaded) {
        float gradients[kWidth];
        gradient.make(loaded, gradients);
        store_pack(dx + at.offset, gradients);
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
__global__ void __launch_bounds__(kThreads, kPooledBackwardBlocks)
    pooled_backward_rows(Windows windows, NormExtent extent, const T* dy, const T* x,
                         const std::uint8_t* argmax, Affine affine, Activation activation,
                         const double* count, const double* sums, T* dinput) {
  using Gradient = InputGradient<kWidth, Activation, T>;
  Gradient gradient(dy, x, activation);
  struct Row {
    typename Gradient::Row behind;
    Pack<std::uint8_t, kWidth> winners;
  };
  // One at a time: two would take so many registers that only one block fits on a multiprocessor.
  for_rows<1, Row>(
      rows_from_end<kWidth>(extent),
      [&](const RowPack& at, Row& loaded) {
        gradient.load(at, loaded.behind);
        loaded.winners = read_pack<kWidth>(argmax + at.offset);
      },
      [&] { gradient.prepare(extent.channels, affine, count, sums); },
      [&](int /*i*/, const RowPack& at, const Row& loaded) {
        float gradients[kWidth];
        gradient.make(loaded.behind, gradients);
        write_behind_window<kKernel>(windows, at.row, first_channel<kWidth>(), gradients,
                                     elements_of(loaded.winners), dinput);
      });
}

template <int kWidth, typename T>
void start_normalise(Device& device, NormExtent extent, const T* x, const NormFunction& function,
                     const T* residual, T* y) {
  const RowTiles tiles = row_tiles(device, extent.rows, divide_up(extent.channels, kWidth),
                                   kNormaliseBlocks, extent.parts);
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
  const RowTiles tiles = row_tiles(device, extent.rows, divide_up(extent.channels, kWidth),
                                   kBackwardBlocks, extent.parts);
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
  const RowTiles tiles = row_tiles(device, extent.rows, divide_up(extent.channels, kWidth),
                                   kPooledBackwardBlocks, extent.parts);
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
    visit_width<T>(
        [&]<int kWidth>() { start_normalise<kWidth>(device, extent, from, function, added, to); },
        extent.channels, from, added, to);
  });
}

void normalise_backward(Device& device, NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                        const NormFunction& function, const double* sums, ArrayRef dx) {
  if (extent.rows == 0) return;
  visit_activation(x.dtype, [&]<typename T>() {
    const T* gradients = as<T>(dy);
    const T* from = as<T>(x);
    T* to = as<T>(dx);
    visit_width<T>(
        [&]<int kWidth>() {
          start_backward<kWidth>(device, extent, gradients, from, function, sums, to);
        },
        extent.channels, gradients, from, to);
  });
}

void pooled_normalise_backward(Device& device, const PoolGeometry& pool, std::int64_t parts,
                               ConstArrayRef dy, ConstArrayRef x, const std::uint8_t* argmax,
                               const NormFunction& function, const double* sums, ArrayRef dinput) {
  if (pool.output().size() == 0) return;
  visit_activation(x.dtype, [&]<typename T>() {
    const auto start = [&]<int kKernel>() {
      visit_width<T>(
          [&]<int kWidth>() {
            start_pooled_backward<kKernel, kWidth>(device, pool, parts, as<T>(dy), as<T>(x), argmax,
                                                   function, sums, as<T>(dinput));
          },
          pool.channels, as<T>(dy), as<T>(x), argmax, as<T>(dinput));
    };
    if (pool.kernel == 2) {
      start.template operator()<2>();
    } else {
      start.template operator()<3>();
    }
  });
}

}  // namespace dlaunch::nn::cuda
