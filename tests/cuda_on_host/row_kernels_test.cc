// What kernels over rows are made of: the ways threads take through them, and sums.
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "nn/cuda/row_sums.cuh"

namespace dlaunch::nn::cuda {
namespace {

template <typename... Parameters, typename... Arguments>
void run(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
  cudaLaunchConfig_t config;
  config.gridDim = grid;
  config.blockDim = block;
  ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, arguments...), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess)
      << cudaGetErrorString(cudaErrorLaunchFailure);
}

constexpr std::int64_t kNever = -1;

// The time at which each element is loaded, and that at which it is stored.
template <bool kFromEnd>
__global__ void visit(std::int64_t begin, std::int64_t end, std::int64_t channels,
                      std::int64_t* time, std::int64_t* loads, std::int64_t* stores) {
  const ThreadRows rows = kFromEnd ? thread_rows_from_end<2>(begin, end, channels)
                                   : thread_rows<2>(begin, end, channels);
  int next = 0;
  int prepared = 0;
  for_rows<3, std::int64_t>(
      rows,
      [&](const RowPack& at, std::int64_t& loaded) {
        loaded = at.offset;
        for (int k = 0; k < 2; ++k)
          loads[at.offset + k] = loads[at.offset + k] == kNever ? ++*time : 0;
      },
      [&] { ++prepared; },
      [&](int i, const RowPack& at, const std::int64_t& loaded) {
        const bool right = i == next++ && prepared == 1 && loaded == at.offset &&
                           at.offset == at.row * channels + first_channel<2>();
        for (int k = 0; k < 2; ++k)
          stores[at.offset + k] = right && stores[at.offset + k] == kNever ? ++*time : 0;
      });
}

TEST(RowKernels, TakeEveryRowOnceInTheOrderOfTheirDirection) {
  constexpr std::int64_t kChannels = 6, kBegin = 2;
  const dim3 grid(2, 3);
  const dim3 block(2, 4);
  constexpr std::int64_t kStep = 12;
  for (const std::int64_t rows : {0, 1, 11, 12, 13, 36, 37, 100})
    for (const bool from_end : {false, true}) {
      SCOPED_TRACE(std::to_string(rows) + (from_end ? " rows from the end" : " rows"));
      const std::int64_t end = kBegin + rows;
      std::vector<std::int64_t> loads(static_cast<std::size_t>((end + 1) * kChannels), kNever);
      std::vector<std::int64_t> stores = loads;
      std::int64_t time = 0;
      run(from_end ? visit<true> : visit<false>, grid, block, kBegin, end, kChannels, &time,
          loads.data(), stores.data());
      for (std::int64_t i = 0; i < (end + 1) * kChannels; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const bool inside = i >= kBegin * kChannels && i < end * kChannels;
        ASSERT_EQ(loads[at] > 0 && stores[at] > 0, inside);
        ASSERT_EQ(loads[at] == kNever && stores[at] == kNever, !inside);
        // The same thread's next or last row.
        const std::int64_t later = i + kStep * kChannels;
        if (!inside || later >= end * kChannels) continue;
        ASSERT_EQ(stores[at] < stores[static_cast<std::size_t>(later)], !from_end);
      }
    }
}

// Sums of integers about the thread's first value, and of ones.
struct CountedTerms {
  static constexpr int kSums = 2;
  static constexpr int kRows = 4;
  template <int kWidth>
  using Row = Pack<float, kWidth>;
  template <int kWidth>
  struct State {
    std::int64_t part;
    float first[kWidth];
  };

  const float* x;

  template <int kWidth>
  __device__ State<kWidth> enter(std::int64_t part, std::int64_t /*channels*/) const {
    return {.part = part, .first = {}};
  }
  template <int kWidth>
  __device__ void load(const RowPack& at, Row<kWidth>& row) const {
    row = read_pack<kWidth>(x + at.offset);
  }
  template <int kWidth>
  __device__ void begin(const Row<kWidth>& row, State<kWidth>& state) const {
    to_floats(row, state.first);
  }
  template <int kWidth>
  __device__ void add(const RowPack& /*at*/, const Row<kWidth>& row, const State<kWidth>& state,
                      float (&sums)[kSums][kWidth]) const {
    float values[kWidth];
    to_floats(row, values);
    for (int k = 0; k < kWidth; ++k) {
      sums[0][k] += values[k] - state.first[k];
      sums[1][k] += 1;
    }
  }
  template <int kWidth>
  __device__ void finish(double count, const State<kWidth>& state,
                         double (&sums)[kSums][kWidth]) const {
    for (int k = 0; k < kWidth; ++k) {
      sums[0][k] += count * static_cast<double>(state.first[k]);
      // So that a wrong count or part shows.
      if (sums[1][k] != count) sums[1][k] = NAN;
      sums[1][k] *= static_cast<double>(state.part + 1);
    }
  }
};

struct StoreBoth {
  std::int64_t channels;
  double* to;
  __device__ void operator()(std::int64_t part, std::int64_t channel,
                             const double (&sums)[2]) const {
    for (int s = 0; s < 2; ++s) to[(part * 2 + s) * channels + channel] += sums[s];
  }
};

class RowSums : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Shares, RowSums, ::testing::Values(1U, 2U, 5U, 40U));

// Threads with several runs of rows, and with none.
TEST_P(RowSums, AreExactOverAnyRowsInOneShareOrMany) {
  constexpr int kWidth = 4;
  constexpr std::int64_t kChannels = 140;
  const unsigned shares = GetParam();
  const dim3 block(32, 8);
  for (const std::int64_t samples : {0, 1, 30, 600}) {
    const RowParts parts{.count = 2, .sample_rows = 3};
    const std::int64_t rows = samples * parts.sample_rows;
    std::vector<float> x(static_cast<std::size_t>(rows * kChannels));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101);
    std::vector<double> sums(std::size_t{2} * 2 * kChannels);
    std::vector<double> scratch(shares * sums.size());
    const StoreBoth write{kChannels, sums.data()};
    run(sum_rows<kWidth, CountedTerms, StoreBoth>, dim3(2, shares, 2), block, rows, kChannels,
        parts, CountedTerms{x.data()}, write, scratch.data());
    if (shares > 1) {
      run(sum_shares<2, StoreBoth>, dim3(5, 2), dim3(32, kShareThreads), static_cast<int>(shares),
          kChannels, static_cast<const double*>(scratch.data()), write);
    }
    for (std::int64_t part = 0; part < 2; ++part)
      for (std::int64_t c = 0; c < kChannels; ++c) {
        std::int64_t sum = 0;
        for (std::int64_t r = parts.begin(rows, part); r < parts.begin(rows, part + 1); ++r)
          sum += (r * kChannels + c) * 37 % 101;
        const auto at = static_cast<std::size_t>(part * 2 * kChannels + c);
        ASSERT_EQ(sums[at], static_cast<double>(sum)) << samples << " samples, channel " << c;
        ASSERT_EQ(sums[at + kChannels], static_cast<double>(parts.size(rows, part) * (part + 1)));
      }
  }
}

}  // namespace
}  // namespace dlaunch::nn::cuda
