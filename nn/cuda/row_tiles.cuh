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

// Blocks before a thread gets a second row, and a third: four on each multiprocessor of an H200.
constexpr std::int64_t kBlocksWanted = 528;
constexpr std::int64_t kMostBlocksDown = 65535;

/// Threads side by side for so many packs of channels: a power of two.
constexpr unsigned lanes_for(std::int64_t packs) {
  unsigned lanes = 1;
  while (lanes < 32 && lanes < packs) lanes *= 2;
  return lanes;
}

/// For kernels that write every row.
inline RowTiles row_tiles(std::int64_t rows, std::int64_t packs, const RowParts& parts = {}) {
  constexpr std::int64_t kMostRows = 64;  // of a thread: more blocks then share the work evenly
  const unsigned lanes = lanes_for(packs);
  const unsigned down = kThreads / lanes;
  const std::int64_t across = divide_up(packs, lanes);
  const std::int64_t here = parts.most(rows);
  const std::int64_t wanted =
      std::max(divide_up(kBlocksWanted, across * parts.count), divide_up(here, down * kMostRows));
  const std::int64_t blocks =
      std::clamp<std::int64_t>(divide_up(here, down), 1, std::min(wanted, kMostBlocksDown));
  return {dim3(static_cast<unsigned>(across), static_cast<unsigned>(blocks),
               static_cast<unsigned>(parts.count)),
          dim3(lanes, down)};
}

/// Elements of a type that are loaded at once, if the rows and all arrays are aligned for it.
template <typename T>
constexpr int kPackOf = kPackBytes / static_cast<int>(sizeof(T));

template <typename T, typename... Memory>
bool packs_fit(std::int64_t channels, const Memory*... memory) {
  return channels % kPackOf<T> == 0 && aligned(memory...);
}

__device__ inline std::int64_t first_row() {
  return std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
}
__device__ inline std::int64_t row_step() {
  return std::int64_t{gridDim.y} * blockDim.y;
}
/// The block's part.
__device__ inline std::int64_t own_part() {
  return std::int64_t{blockIdx.z};
}
/// Of the thread's rows from `row` on, calls load(row, loaded) for kRows and then store(row,
/// loaded) for them, and so on: more of memory is on its way than by one row at a time. (Compilers
/// keep loads behind stores that may be to the same place.)
template <int kRows, typename Loaded, typename Load, typename Store>
__device__ void for_rows(std::int64_t row, std::int64_t end, const Load& load, const Store& store) {
  const std::int64_t step = row_step();
  for (; row < end; row += kRows * step) {
    Loaded loaded[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (row + i * step < end) load(row + i * step, loaded[i]);
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (row + i * step < end) store(row + i * step, loaded[i]);
  }
}

/// Of the pack that this thread has, the first channel.
template <int kWidth>
__device__ std::int64_t first_channel() {
  return global_thread() * kWidth;
}

}  // namespace dlaunch::nn::cuda
