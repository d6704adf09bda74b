// Kernels over matrices: a row to all rows, and sums of columns.
#include "nn/cuda/kernels.h"
#include "nn/cuda/row_sums.cuh"

namespace dlaunch::nn::cuda {
namespace {

constexpr int kAddBlocks = 4;  // that a multiprocessor runs at once, as registers allow

__global__ void broadcast_row(std::int64_t rows, std::int64_t columns, const float* row, float* y) {
  const std::int64_t column = first_channel<1>();
  if (column >= columns) return;
  const float value = row[column];
  for (std::int64_t r = first_row(); r < rows; r += row_step()) y[r * columns + column] = value;
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads, kAddBlocks)
    add_row(std::int64_t rows, std::int64_t columns, const float* row, T* y) {
  const std::int64_t column = first_channel<kWidth>();
  if (column >= columns) return;
  float added[kWidth];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) added[k] = row[column + k];
  using Columns = Pack<T, kWidth>;
  for_rows<4, Columns>(
      thread_rows<kWidth>(0, rows, columns),
      [&](const RowPack& at, Columns& loaded) { loaded = read_pack<kWidth>(y + at.offset); }, [] {},
      [&](int /*i*/, const RowPack& at, const Columns& loaded) {
        float values[kWidth];
        to_floats(loaded, values);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] += added[k];
        store_pack(y + at.offset, values);
      });
}

template <int kWidth, typename T>
void start_add_row(Device& device, std::int64_t rows, std::int64_t columns, const float* row,
                   T* y) {
  const auto [grid, block] = row_tiles(device, rows, divide_up(columns, kWidth), kAddBlocks);
  launch(device, "add_to_rows", add_row<kWidth, T>, grid, block, rows, columns, row, y);
}

template <typename T>
struct Values {
  static constexpr int kSums = 1;
  static constexpr int kRows = 4;
  template <int kWidth>
  using Row = Pack<T, kWidth>;
  template <int kWidth>
  struct State {};

  const T* x;

  template <int kWidth>
  __device__ State<kWidth> enter(std::int64_t /*part*/, std::int64_t /*channels*/) const {
    return {};
  }
  template <int kWidth>
  __device__ void load(const RowPack& at, Row<kWidth>& row) const {
    row = read_pack<kWidth>(x + at.offset);
  }
  template <int kWidth>
  __device__ void begin(const Row<kWidth>& /*row*/, State<kWidth>& /*state*/) const {}
  template <int kWidth>
  __device__ void add(const RowPack& /*at*/, const Row<kWidth>& row, const State<kWidth>& /*state*/,
                      float (&sums)[kSums][kWidth]) const {
    float values[kWidth];
    to_floats(row, values);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sums[0][k] += values[k];
  }
  template <int kWidth>
  __device__ void finish(double /*count*/, const State<kWidth>& /*state*/,
                         double (&/*sums*/)[kSums][kWidth]) const {}
};

struct Accumulate {
  float* to;
  __device__ void operator()(std::int64_t /*part*/, std::int64_t column,
                             const double (&sums)[1]) const {
    to[column] += static_cast<float>(sums[0]);
  }
};

}  // namespace

void broadcast_rows(Device& device, std::int64_t rows, std::int64_t columns, const float* row,
                    float* y) {
  if (rows == 0 || columns == 0) return;
  const auto [grid, block] = row_tiles(device, rows, columns);
  launch(device, "broadcast_rows", broadcast_row, grid, block, rows, columns, row, y);
}

void add_to_rows(Device& device, std::int64_t rows, std::int64_t columns, const float* row,
                 ArrayRef y) {
  if (rows == 0 || columns == 0) return;
  visit_activation(y.dtype, [&]<typename T>() {
    T* const to = as<T>(y);
    visit_width<T>([&]<int kWidth>() { start_add_row<kWidth>(device, rows, columns, row, to); },
                   columns, to);
  });
}

void accumulate_column_sums(Device& device, std::int64_t rows, std::int64_t columns,
                            ConstArrayRef x, float* sums) {
  if (rows == 0) return;
  visit_activation(x.dtype, [&]<typename T>() {
    const Values<T> values{as<T>(x)};
    start_row_sums<T>(device, "column sums", rows, columns, {}, values, Accumulate{sums}, values.x);
  });
}

}  // namespace dlaunch::nn::cuda
