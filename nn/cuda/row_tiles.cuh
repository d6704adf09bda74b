// Kernels over rows of channels, channels innermost: a block has `lanes` threads side by side, each
// with a pack of channels, and the others below them on other rows; the grid's x goes over
// channels, its y over rows, its z over parts of them. So a thread keeps its channels, and what it
// computed for them, from row to row.
#pragma once

#include "nn/core/row_parts.h"
#include "nn/cuda/launch.cuh"

namespace dlaunch::nn::cuda {

struct RowTiles {
  dim3 grid;
  dim3 block;
};

/// Threads side by side for so many packs of channels: a power of two.
constexpr unsigned lanes_for(std::int64_t packs) {
  unsigned lanes = 1;
  while (lanes < 32 && lanes < packs) lanes *= 2;
  return lanes;
}

/// For kernels that write every row, of which a multiprocessor runs `at_once` blocks side by side:
/// no more blocks than that, unless channels and parts alone make more. A few more would have the
/// device to themselves in the end; and as blocks take turns row by row, they would go through the
/// whole array a second time, not from one end to the other, so that L2 would be of no use.
inline RowTiles row_tiles(const Device& device, std::int64_t rows, std::int64_t packs,
                          int at_once = kBlocksAtOnce, const RowParts& parts = {}) {
  const unsigned lanes = lanes_for(packs);
  const unsigned down = kThreads / lanes;
  const std::int64_t across = divide_up(packs, lanes);
  const std::int64_t most = std::int64_t{at_once} * device.multiprocessors();
  const std::int64_t blocks =
      std::min(divide_up(parts.most(rows), down), most / (across * parts.count));
  return {
      dim3(static_cast<unsigned>(across), static_cast<unsigned>(std::max<std::int64_t>(blocks, 1)),
           static_cast<unsigned>(parts.count)),
      dim3(lanes, down)};
}

/// Calls start.operator()<elements at once>(): packs of T, if the rows and all arrays in `memory`
/// are aligned for them.
template <typename T, typename Start, typename... Memory>
void visit_width(const Start& start, std::int64_t channels, const Memory*... memory) {
  if (channels % pack_of<T>() == 0 && aligned(memory...)) {
    start.template operator()<pack_of<T>()>();
  } else {
    start.template operator()<1>();
  }
}

__device__ inline std::int64_t first_row() {
  return std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
}
__device__ inline std::int64_t row_step() {
  return std::int64_t{gridDim.y} * blockDim.y;
}
__device__ inline int thread_of_block() {
  return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
}
/// The block's part.
__device__ inline std::int64_t own_part() {
  return std::int64_t{blockIdx.z};
}
/// Of the pack that this thread has, the first channel.
template <int kWidth>
__device__ std::int64_t first_channel() {
  return global_thread() * kWidth;
}

/// Where a row's pack of channels lies.
struct RowPack {
  std::int64_t row, offset;
};

/// The thread's rows between two of them, and its pack in them: where it begins, how far it is from
/// one to the next, and how many there are, which is none for a thread without channels.
struct ThreadRows {
  RowPack first, step;
  int count;
};
template <int kWidth>
__device__ ThreadRows thread_rows(std::int64_t begin, std::int64_t end, std::int64_t channels) {
  const std::int64_t channel = first_channel<kWidth>();
  const std::int64_t row = begin + first_row();
  const std::int64_t step = row_step();
  const std::int64_t count = row < end && channel < channels ? (end - row + step - 1) / step : 0;
  return {{row, row * channels + channel}, {step, step * channels}, static_cast<int>(count)};
}
/// From the end to the beginning: L2 still has what the kernel before, which went the other way,
/// came to last.
template <int kWidth>
__device__ ThreadRows thread_rows_from_end(std::int64_t begin, std::int64_t end,
                                           std::int64_t channels) {
  ThreadRows rows = thread_rows<kWidth>(begin, end, channels);
  rows.first.row = begin + end - 1 - rows.first.row;
  rows.first.offset = rows.first.row * channels + first_channel<kWidth>();
  rows.step = {-rows.step.row, -rows.step.offset};
  return rows;
}

/// Calls load(at, loaded) for kRows of them and then store(i, at, loaded) for these, which are
/// numbers i, i + 1 ..., and so on: more of memory is on its way than by one row at a time.
/// (Compilers keep loads behind stores that may be to the same place.) Once, also by threads
/// without rows, it calls prepare(), for what store() needs: while the first rows are on their way.
template <int kRows, typename Loaded, typename Load, typename Prepare, typename Store>
__device__ void for_rows(const ThreadRows& rows, const Load& load, const Prepare& prepare,
                         const Store& store) {
  RowPack at = rows.first;
  const auto behind = [&](int j) {
    return RowPack{at.row + j * rows.step.row, at.offset + j * rows.step.offset};
  };
  Loaded loaded[kRows];
  const auto load_from = [&](int i) {
#pragma unroll
    for (int j = 0; j < kRows; ++j)
      if (i + j < rows.count) load(behind(j), loaded[j]);
  };
  load_from(0);
  prepare();
  for (int i = 0; i < rows.count; i += kRows) {
    if (i > 0) load_from(i);
#pragma unroll
    for (int j = 0; j < kRows; ++j)
      if (i + j < rows.count) store(i + j, behind(j), loaded[j]);
    at = behind(kRows);
  }
}

}  // namespace dlaunch::nn::cuda
