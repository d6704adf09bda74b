// A thread that sums the moments of some rows takes the first of them as its shift: however odd
// that row is, it is one of those that are summed, so that what is lost is small against their own
// second moment. The threads' moments are then packed, in double, and add up like those of ranks
// (nn/core/batch_statistics.h).
#include "nn/core/batch_statistics.h"
#include "nn/cuda/max_pool.cuh"
#include "nn/cuda/norm_passes.h"
#include "nn/cuda/row_sums.cuh"

namespace dlaunch::nn::cuda {
namespace {

// Rows that are there.
template <typename T>
struct StoredRows {
  static constexpr int kRows = 8;
  template <int kWidth>
  using Row = Pack<T, kWidth>;

  const T* x;

  template <int kWidth>
  __device__ void load(const RowPack& at, Row<kWidth>& row) const {
    row = read_pack<kWidth>(x + at.offset);
  }
  template <int kWidth>
  __device__ void values(const Row<kWidth>& row, float (&to)[kWidth]) const {
    to_floats(row, to);
  }
  template <int kWidth>
  __device__ void store(const RowPack& /*at*/, const Row<kWidth>& /*row*/) const {}
};

// Rows that max-pooling makes.
template <int kKernel, typename T>
struct PooledRows {
  static constexpr int kRows = 1;  // each of as many packs as a window has pixels
  template <int kWidth>
  struct Row {
    float maxima[kWidth];
    Places<kWidth> places;
  };

  PoolGeometry pool;
  std::int64_t out_height, out_width;
  const T* input;
  T* x;
  std::uint8_t* argmax;

  template <int kWidth>
  __device__ void load(const RowPack& at, Row<kWidth>& row) const {
    const Pixel pixel = pixel_at(at.row, out_height, out_width);
    const std::int64_t image = pixel.image * pool.height * pool.width * pool.channels;
    row.places =
        max_of_window<kKernel>(pool, pixel, input + image + first_channel<kWidth>(), row.maxima);
  }
  template <int kWidth>
  __device__ void values(const Row<kWidth>& row, float (&to)[kWidth]) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) to[k] = row.maxima[k];
  }
  template <int kWidth>
  __device__ void store(const RowPack& at, const Row<kWidth>& row) const {
    store_pack(x + at.offset, row.maxima);
    store_places(row.places, argmax, at.offset);
  }
};

template <typename Rows>
struct MomentTerms {
  static constexpr int kSums = 2;
  static constexpr int kRows = Rows::kRows;
  template <int kWidth>
  using Row = typename Rows::template Row<kWidth>;
  template <int kWidth>
  struct State {
    float shift[kWidth];
  };

  Rows rows;

  template <int kWidth>
  __device__ State<kWidth> enter(std::int64_t /*part*/, std::int64_t /*channels*/) const {
    return {};
  }
  template <int kWidth>
  __device__ void load(const RowPack& at, Row<kWidth>& row) const {
    rows.load(at, row);
  }
  template <int kWidth>
  __device__ void begin(const Row<kWidth>& row, State<kWidth>& state) const {
    rows.values(row, state.shift);
  }
  template <int kWidth>
  __device__ void add(const RowPack& at, const Row<kWidth>& row, const State<kWidth>& state,
                      float (&sums)[kSums][kWidth]) const {
    float values[kWidth] = {};
    rows.values(row, values);
    rows.store(at, row);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float d = values[k] - state.shift[k];
      sums[0][k] += d;
      sums[1][k] += d * d;
    }
  }
  template <int kWidth>
  __device__ void finish(double count, const State<kWidth>& state,
                         double (&sums)[kSums][kWidth]) const {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const PackedMoments packed =
          pack(static_cast<double>(state.shift[k]), count, sums[0][k], sums[1][k]);
      sums[0][k] = packed.sum;
      sums[1][k] = packed.square_sum;
    }
  }
};

struct FinishedChannel {
  double count;
  Moments moments;
  double inv_std;
};

__device__ FinishedChannel finished_channel(const StatisticsFinish& finish, double count,
                                            double sum, double square_sum) {
  const Moments moments = unpack(count, {.sum = sum, .square_sum = square_sum});
  return {count, moments, 1 / sqrt(biased_variance(count, moments.m2) + finish.eps)};
}

__device__ void move_running(const StatisticsFinish& finish, std::int64_t channel,
                             const PartMeans& means) {
  const RunningStatistics& running = finish.running;
  if (running.mean != nullptr)
    means.move(running.mean[channel], running.variance[channel], finish.momentum);
}

// Statistics from the moments' sums, finished where a part is all there is.
struct StoreStatistics {
  NormExtent extent;
  bool finished;
  StatisticsFinish finish;
  double* statistics;
  int* fault;

  __device__ void operator()(std::int64_t part, std::int64_t channel,
                             const double (&sums)[2]) const {
    const auto count = static_cast<double>(extent.parts.size(extent.rows, part));
    double* const own = statistics + part * norm_statistics_size(extent.channels);
    double first = sums[0];
    double second = sums[1];
    if (finished && count == 1) *fault = kSingleRow;
    if (finished && count != 1) {
      const FinishedChannel of = finished_channel(finish, count, first, second);
      first = of.moments.mean;
      second = of.inv_std;
      PartMeans means;
      means.add(of.count, of.moments);
      move_running(finish, channel, means);
    }
    if (channel == 0) own[0] = count;
    own[1 + channel] = first;
    own[1 + extent.channels + channel] = second;
  }
};

__global__ void finish_all(std::int64_t parts, std::int64_t channels, StatisticsFinish finish,
                           double* statistics, int* fault) {
  const std::int64_t size = norm_statistics_size(channels);
  for (std::int64_t part = 0; part < parts; ++part) {
    if (statistics[part * size] != 1) continue;
    *fault = kSingleRow;
    return;
  }
  // Several parts' loads and divisions at once: those of one wait for each other.
  constexpr int kAtOnce = 4;
  for (std::int64_t c = global_thread(); c < channels; c += all_threads()) {
    PartMeans means;
    for (std::int64_t first = 0; first < parts; first += kAtOnce) {
      FinishedChannel of[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const double* const own = statistics + std::min(first + i, parts - 1) * size;
        of[i] = finished_channel(finish, own[0], own[1 + c], own[1 + channels + c]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= parts) break;
        double* const own = statistics + (first + i) * size;
        own[1 + c] = of[i].moments.mean;
        own[1 + channels + c] = of[i].inv_std;
        means.add(of[i].count, of[i].moments);
      }
    }
    move_running(finish, c, means);
  }
}

__global__ void finish_from_running(std::int64_t channels, double eps, const float* running_mean,
                                    const float* running_variance, double* statistics) {
  if (global_thread() == 0) statistics[0] = 0;
  for (std::int64_t c = global_thread(); c < channels; c += all_threads()) {
    statistics[1 + c] = static_cast<double>(running_mean[c]);
    statistics[1 + channels + c] = 1 / sqrt(static_cast<double>(running_variance[c]) + eps);
  }
}

template <typename T, typename Rows, typename... Memory>
void start_statistics(Device& device, const char* name, NormExtent extent, const Rows& rows,
                      const StatisticsFinish* finish, double* statistics, const Memory*... memory) {
  // Several parts move the running statistics together.
  const bool at_once = finish != nullptr && extent.parts.count == 1;
  const StoreStatistics write{extent, at_once, at_once ? *finish : StatisticsFinish(), statistics,
                              device.fault()};
  start_row_sums<T>(device, name, extent.rows, extent.channels, extent.parts,
                    MomentTerms<Rows>{rows}, write, memory...);
  if (finish != nullptr && !at_once)
    finish_statistics(device, extent.parts.count, extent.channels, *finish, statistics);
}

}  // namespace

void batch_statistics(Device& device, NormExtent extent, ConstArrayRef x,
                      const StatisticsFinish* finish, double* statistics) {
  visit_activation(x.dtype, [&]<typename T>() {
    start_statistics<T>(device, "batch statistics", extent, StoredRows<T>{as<T>(x)}, finish,
                        statistics, as<T>(x));
  });
}

void pool_and_sum(Device& device, const PoolGeometry& pool, std::int64_t parts, ConstArrayRef input,
                  ArrayRef x, std::uint8_t* argmax, const StatisticsFinish* finish,
                  double* statistics) {
  visit_activation(x.dtype, [&]<typename T>() {
    const auto start = [&]<int kKernel>() {
      const PooledRows<kKernel, T> rows{pool,         pool.out_height(), pool.out_width(),
                                        as<T>(input), as<T>(x),          argmax};
      start_statistics<T>(device, "max_pool2d and batch statistics", extent_behind(pool, parts),
                          rows, finish, statistics, as<T>(input), as<T>(x), argmax);
    };
    if (pool.kernel == 2) {
      start.template operator()<2>();
    } else {
      start.template operator()<3>();
    }
  });
}

void finish_statistics(Device& device, std::int64_t parts, std::int64_t channels,
                       const StatisticsFinish& finish, double* statistics) {
  launch(device, "finish statistics", finish_all, blocks_for(device, channels), kThreads, parts,
         channels, finish, statistics, device.fault());
}

void statistics_from_running(Device& device, std::int64_t channels, double eps,
                             const float* running_mean, const float* running_variance,
                             double* statistics) {
  launch(device, "running statistics", finish_from_running, blocks_for(device, channels), kThreads,
         channels, eps, running_mean, running_variance, statistics);
}

}  // namespace dlaunch::nn::cuda
