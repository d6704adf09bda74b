// Sums over the rows of each part, per channel, always in the same order: each thread adds its rows
// in float in short runs and these in double, a block its threads, and a second kernel the blocks.
//
// What is summed is said by `Terms`, a kernel's argument, which has kSums sums per channel and
//   template <int kWidth> struct State;                  // what a thread keeps of its channels
//   void enter_part(part, channels)                      // all that follows is of that part
//   State<kWidth> begin<kWidth>(const RowPack&)          // of the thread's first row
//   void add(const RowPack&, const State&, float (&sums)[kSums][kWidth])   // once for each row
//   void finish(channel, count, const State&, double (&sums)[kSums][kWidth])   // of `count` rows
// The finished sums of all threads add up to the result.
#pragma once

#include "nn/cuda/row_tiles.cuh"

namespace dlaunch::nn::cuda {

constexpr int kRunRows = 64;  // added in float
// Blocks at most, each with a share of a part's rows: what fits at once on the 132 multiprocessors
// of an H100 or H200, two on each. More would begin, and add up their threads, one after the other.
// A constant, so that sums do not depend on the device.
constexpr std::int64_t kSumBlocks = 264;
constexpr std::int64_t kRowsToSum = 4;  // per thread at least, before there are more shares
constexpr int kShareThreads = 32;       // that add a channel's shares in the second kernel

/// A row's pack of channels: the first of them, and where in the array it lies.
struct RowPack {
  std::int64_t row, channel, offset;
};

// The sums of `values` over the block's threads below each other, for kSums sums. All threads of
// the block take part; those without channels have zeros.
template <int kSums, int kWidth>
__device__ void write_block_sums(const double (&values)[kSums][kWidth], std::int64_t channels,
                                 double* sums) {
  __shared__ double shared[kThreads * kWidth];
  const int columns = static_cast<int>(blockDim.x) * kWidth;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int s = 0; s < kSums; ++s) {
    __syncthreads();  // the sums before have been read
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      shared[threadIdx.y * columns + threadIdx.x * kWidth + k] = values[s][k];
    __syncthreads();
    const std::int64_t channel = std::int64_t{blockIdx.x} * columns + thread;
    if (thread >= columns || channel >= channels) continue;
    double sum = 0;
    for (int down = 0; down < static_cast<int>(blockDim.y); ++down)
      sum += shared[down * columns + thread];
    const std::int64_t share = std::int64_t{blockIdx.y} * gridDim.z + blockIdx.z;
    sums[(share * kSums + s) * channels + channel] = sum;
  }
}

/// sums [gridDim.y][parts][kSums][channels]. Two blocks at least must fit on a multiprocessor, so
/// that one computes while the other waits for memory.
template <int kWidth, typename Terms>
__global__ void __launch_bounds__(kThreads, 2)
    sum_rows(std::int64_t rows, std::int64_t channels, RowParts parts, Terms terms, double* sums) {
  const std::int64_t channel = first_channel<kWidth>();
  const std::int64_t step = row_step();
  double totals[Terms::kSums][kWidth] = {};
  std::int64_t row = parts.begin(rows, own_part()) + first_row();
  const std::int64_t end = parts.begin(rows, own_part() + 1);
  terms.enter_part(own_part(), channels);
  if (channel < channels && row < end) {
    const std::int64_t count = (end - row + step - 1) / step;
    const auto state =
        terms.template begin<kWidth>(RowPack{row, channel, row * channels + channel});
    for (std::int64_t done = 0; done < count; done += kRunRows) {
      const std::int64_t here = count - done < kRunRows ? count - done : kRunRows;
      float run[Terms::kSums][kWidth] = {};
#pragma unroll 4
      for (std::int64_t i = 0; i < here; ++i, row += step)
        terms.add(RowPack{row, channel, row * channels + channel}, state, run);
#pragma unroll
      for (int s = 0; s < Terms::kSums; ++s)
#pragma unroll
        for (int k = 0; k < kWidth; ++k) totals[s][k] += static_cast<double>(run[s][k]);
    }
    terms.finish(channel, static_cast<double>(count), state, totals);
  }
  write_block_sums(totals, channels, sums);
}

/// Adds [shares][width] up and hands each column's sum to `write(column, sum)`.
template <typename Write>
__global__ void __launch_bounds__(32 * kShareThreads)
    sum_shares(int shares, std::int64_t width, const double* sums, Write write) {
  __shared__ double shared[kShareThreads][32];
  const std::int64_t column = std::int64_t{blockIdx.x} * 32 + threadIdx.x;
  double sum = 0;
  if (column < width) {
#pragma unroll 8
    for (int share = static_cast<int>(threadIdx.y); share < shares; share += kShareThreads)
      sum += sums[share * width + column];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  sum = 0;
  for (int i = 0; i < kShareThreads; ++i) sum += shared[i][threadIdx.x];
  write(column, sum);
}

struct StoreSum {
  double* to;
  __device__ void operator()(std::int64_t column, double sum) const { to[column] = sum; }
};
struct AccumulateSum {
  float* to;
  __device__ void operator()(std::int64_t column, double sum) const {
    to[column] += static_cast<float>(sum);
  }
};

/// For `Terms` over rows of `channels`, in packs of kWidth. A column is one of [parts][kSums][C].
template <int kWidth, typename Terms, typename Write>
void start_row_sums(Device& device, const char* name, std::int64_t rows, std::int64_t channels,
                    const RowParts& parts, const Terms& terms, const Write& write) {
  if (channels == 0) return;
  const std::int64_t packs = divide_up(channels, kWidth);
  const unsigned lanes = lanes_for(packs);
  const unsigned down = kThreads / lanes;
  const std::int64_t across = divide_up(packs, lanes);
  const auto shares = static_cast<unsigned>(
      std::clamp<std::int64_t>(divide_up(parts.most(rows), down * kRowsToSum), 1,
                               std::max<std::int64_t>(kSumBlocks / (across * parts.count), 1)));
  const std::int64_t width = parts.count * Terms::kSums * channels;
  const ScratchMemory scratch(device.memory(),
                              static_cast<std::size_t>(shares * width) * sizeof(double));
  auto* const sums = static_cast<double*>(scratch.get());
  launch(device, name, sum_rows<kWidth, Terms>,
         dim3(static_cast<unsigned>(across), shares, static_cast<unsigned>(parts.count)),
         dim3(lanes, down), rows, channels, parts, terms, sums);
  launch(device, name, sum_shares<Write>, static_cast<unsigned>(divide_up(width, 32)),
         dim3(32, kShareThreads), static_cast<int>(shares), width, sums, write);
}

}  // namespace dlaunch::nn::cuda
