// Sums over the rows of each part, per channel, always in the same order: each thread adds its rows
// in float in short runs and these in double, a block its threads, and a second kernel the blocks,
// where a part has more than one.
//
// What is summed is said by `Terms`, a kernel's argument, which has kSums sums per channel, takes
// kRows rows at once, and has
//   template <int kWidth> struct Row;              // what is loaded of a row
//   template <int kWidth> struct State;            // what a thread keeps of its channels
//   State<kWidth> enter<kWidth>(part, channels)    // by all threads of a block of that part
//   void load(const RowPack&, Row&)                // once for each row
//   void begin(const Row&, State&)                 // of the thread's first row
//   void add(const RowPack&, const Row&, const State&, float (&sums)[kSums][kWidth])
//   void finish(count, const State&, double (&sums)[kSums][kWidth])   // of `count` rows
// The finished sums of all threads add up to the result. It goes to a functor, `Write`, which is
// called by one thread for each channel of each part:
//   void operator()(part, channel, const double (&sums)[kSums])
#pragma once

#include "nn/cuda/row_tiles.cuh"

namespace dlaunch::nn::cuda {

constexpr int kRunRows = 64;  // added in float
// Blocks at most, each with a share of a part's rows: what fits at once on the 132 multiprocessors
// of an H100 or H200. More would begin, and add up their threads, one after the other. A constant,
// so that sums do not depend on the device.
constexpr int kSumBlocksAtOnce = 2;
constexpr std::int64_t kSumBlocks = std::int64_t{132} * kSumBlocksAtOnce;
// Rows of a thread: so many at least before a part has several shares, and then before it has more.
// (To start a second kernel takes as long as to read some more rows.)
constexpr std::int64_t kRowsOfOneShare = 16;
constexpr std::int64_t kRowsToShare = 4;
constexpr int kShareThreads = 32;  // that add a channel's shares in the second kernel

/// Of each thread of a block. Those that differ by a channel of a pack, and those that differ by a
/// pack, are in different banks of shared memory.
template <int kSums, int kWidth>
struct ThreadSums {
  // Volatile, for compilers to keep no copy in registers, of which the loops need all there are.
  volatile double values[kSums][kWidth][kThreads + 16 / kWidth];

  /// Calls visit(a sum of the thread, element of `own`) for all of them.
  template <typename Value, typename Visit>
  __device__ void visit_own(Value (&own)[kSums][kWidth], const Visit& visit) {
    const int thread = thread_of_block();
#pragma unroll
    for (int s = 0; s < kSums; ++s)
#pragma unroll
      for (int k = 0; k < kWidth; ++k) visit(values[s][k][thread], own[s][k]);
  }

  /// Over the block's threads below each other, of the block's channel number `column`.
  __device__ void add_up(int column, double (&sums)[kSums]) const {
    const auto lanes = static_cast<int>(blockDim.x);
    for (int down = 0; down < static_cast<int>(blockDim.y); ++down)
#pragma unroll
      for (int s = 0; s < kSums; ++s)
        sums[s] += values[s][column % kWidth][down * lanes + column / kWidth];
  }
};

/// The thread's sums over its rows. By all threads of a block of part `part`.
template <int kWidth, typename Terms>
__device__ void sum_own_rows(const ThreadRows& rows, std::int64_t part, std::int64_t channels,
                             const Terms& terms, ThreadSums<Terms::kSums, kWidth>& totals) {
  constexpr int kSums = Terms::kSums;
  typename Terms::template State<kWidth> state{};
  float run[kSums][kWidth] = {};
  totals.visit_own(run, [](volatile double& total, float none) { total = none; });
  const auto end_run = [&] {
    totals.visit_own(run, [](volatile double& total, float& sum) {
      total = total + static_cast<double>(sum);
      sum = 0;
    });
  };
  using Row = typename Terms::template Row<kWidth>;
  for_rows<Terms::kRows, Row>(
      rows, [&](const RowPack& at, Row& loaded) { terms.load(at, loaded); },
      [&] { state = terms.template enter<kWidth>(part, channels); },
      [&](int i, const RowPack& at, const Row& loaded) {
        if (i == 0) terms.begin(loaded, state);
        terms.add(at, loaded, state, run);
        if ((i + 1) % kRunRows == 0) end_run();
      });
  end_run();
  double sums[kSums][kWidth];
  totals.visit_own(sums, [](volatile double& total, double& sum) { sum = total; });
  terms.finish(rows.count, state, sums);
  totals.visit_own(sums, [](volatile double& total, double sum) { total = sum; });
}

/// `sums` is [gridDim.y][parts][kSums][channels], unused if there is one share.
template <int kWidth, typename Terms, typename Write>
__global__ void __launch_bounds__(kThreads, kSumBlocksAtOnce)
    sum_rows(std::int64_t rows, std::int64_t channels, RowParts parts, Terms terms, Write write,
             double* sums) {
  constexpr int kSums = Terms::kSums;
  __shared__ ThreadSums<kSums, kWidth> totals;
  const std::int64_t part = own_part();
  const ThreadRows own =
      thread_rows<kWidth>(parts.begin(rows, part), parts.begin(rows, part + 1), channels);
  sum_own_rows<kWidth>(own, part, channels, terms, totals);
  __syncthreads();
  const int column = thread_of_block();
  const int columns = static_cast<int>(blockDim.x) * kWidth;
  const std::int64_t channel = std::int64_t{blockIdx.x} * columns + column;
  if (column >= columns || channel >= channels) return;
  double sum[kSums] = {};
  totals.add_up(column, sum);
  if (gridDim.y == 1) return write(part, channel, sum);
  const std::int64_t share = std::int64_t{blockIdx.y} * gridDim.z + blockIdx.z;
#pragma unroll
  for (int s = 0; s < kSums; ++s) sums[(share * kSums + s) * channels + channel] = sum[s];
}

/// Adds [shares][parts][kSums][channels] up, a part for each of the grid's y.
template <int kSums, typename Write>
__global__ void __launch_bounds__(32 * kShareThreads, 1)
    sum_shares(int shares, std::int64_t channels, const double* sums, Write write) {
  __shared__ double shared[kSums][kShareThreads][32];
  const std::int64_t channel = std::int64_t{blockIdx.x} * 32 + threadIdx.x;
  const std::int64_t part = std::int64_t{blockIdx.y};
  double sum[kSums] = {};
  if (channel < channels) {
#pragma unroll 8
    for (int share = static_cast<int>(threadIdx.y); share < shares; share += kShareThreads)
#pragma unroll
      for (int s = 0; s < kSums; ++s)
        sum[s] += sums[((std::int64_t{share} * gridDim.y + part) * kSums + s) * channels + channel];
  }
#pragma unroll
  for (int s = 0; s < kSums; ++s) shared[s][threadIdx.y][threadIdx.x] = sum[s];
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  double total[kSums] = {};
  for (int i = 0; i < kShareThreads; ++i)
#pragma unroll
    for (int s = 0; s < kSums; ++s) total[s] += shared[s][i][threadIdx.x];
  write(part, channel, total);
}

/// Of a part's rows, with `down` threads of a block below each other and so many blocks for all.
constexpr std::int64_t shares_of(std::int64_t rows, unsigned down, std::int64_t blocks) {
  if (rows <= down * kRowsOfOneShare) return 1;
  return std::clamp<std::int64_t>(divide_up(rows, down * kRowsToShare), 1,
                                  std::max<std::int64_t>(blocks, 1));
}

template <int kWidth, typename Terms, typename Write>
void start_sums_of_packs(Device& device, const char* name, std::int64_t rows, std::int64_t channels,
                         const RowParts& parts, const Terms& terms, const Write& write) {
  if (channels == 0) return;
  const std::int64_t packs = divide_up(channels, kWidth);
  const unsigned lanes = lanes_for(packs);
  const unsigned down = kThreads / lanes;
  const std::int64_t across = divide_up(packs, lanes);
  const auto all_parts = static_cast<unsigned>(parts.count);
  const auto shares =
      static_cast<unsigned>(shares_of(parts.most(rows), down, kSumBlocks / (across * parts.count)));
  const std::int64_t width = parts.count * Terms::kSums * channels;
  const ScratchMemory scratch(
      device.memory(), shares == 1 ? 0 : static_cast<std::size_t>(shares * width) * sizeof(double));
  auto* const sums = static_cast<double*>(scratch.get());
  launch(device, name, sum_rows<kWidth, Terms, Write>,
         dim3(static_cast<unsigned>(across), shares, all_parts), dim3(lanes, down), rows, channels,
         parts, terms, write, sums);
  if (shares == 1) return;
  launch(device, name, sum_shares<Terms::kSums, Write>,
         dim3(static_cast<unsigned>(divide_up(channels, 32)), all_parts), dim3(32, kShareThreads),
         static_cast<int>(shares), channels, sums, write);
}

/// For `Terms` over rows of `channels` in arrays of T, all of which are named in `memory`.
template <typename T, typename Terms, typename Write, typename... Memory>
void start_row_sums(Device& device, const char* name, std::int64_t rows, std::int64_t channels,
                    const RowParts& parts, const Terms& terms, const Write& write,
                    const Memory*... memory) {
  visit_width<T>(
      [&]<int kWidth>() {
        start_sums_of_packs<kWidth>(device, name, rows, channels, parts, terms, write);
      },
      channels, memory...);
}

}  // namespace dlaunch::nn::cuda
