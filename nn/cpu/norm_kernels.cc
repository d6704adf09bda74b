// NormKernels on CPU. Sums run in float over short blocks of rows about a shift near the mean, and
// in double over blocks and threads. The mean is used as a float and its remainder, so that
// normalising loses nothing where the mean is large against the deviation. OpenMP threads help
// where there is enough to do; results do not depend on their number.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

#include "nn/core/batch_statistics.h"
#include "nn/cpu/kernel_groups.h"
#include "nn/cpu/norm_rows.h"
#include "nn/cpu/parallel.h"

namespace dlaunch::nn {
namespace {

// Rows that are summed in float before the sum goes into a double.
constexpr std::int64_t kBlockRows = 64;
// Rows, evenly spread, whose mean is the shift. However odd those rows are, their mean s is not far
// from the batch's mean m in units of its variance v: (s - m)^2 <= v rows / kShiftRows
// (Cauchy-Schwarz); usually it is a fraction of v.
constexpr std::int64_t kShiftRows = 16;
// Elements that one thread sums before the parts' sums are added up, and how many parts there are
// at most. Both depend on the batch alone, so that sums do not depend on the number of threads.
constexpr std::int64_t kElementsPerPart = 1 << 16;
constexpr std::int64_t kMaxParts = 32;
// Elements for which one more thread is worth waking.
constexpr std::int64_t kGrain = 1 << 15;

/// Two sums per channel over all rows, in double: first the C first ones, then the C second ones.
/// add_block(first row, row count, first, second) adds a short block of rows in float.
template <typename AddBlock>
std::vector<double> sum_rows(NormExtent extent, const AddBlock& add_block) {
  const auto width = static_cast<std::size_t>(2 * extent.channels);
  const std::int64_t parts =
      std::clamp<std::int64_t>(extent.rows * extent.channels / kElementsPerPart, 1, kMaxParts);
  std::vector<double> sums(width * static_cast<std::size_t>(parts));
  const auto sum_part = [&](std::int64_t part, std::vector<float>& block) {
    double* mine = sums.data() + width * static_cast<std::size_t>(part);
    const std::int64_t end = extent.rows * (part + 1) / parts;
    for (std::int64_t row = extent.rows * part / parts; row < end; row += kBlockRows) {
      std::fill(block.begin(), block.end(), 0.0F);
      add_block(row, std::min(kBlockRows, end - row), block.data(), block.data() + extent.channels);
      for (std::size_t i = 0; i < width; ++i) mine[i] += static_cast<double>(block[i]);
    }
  };
  cpu::parallel_ranges(parts, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> block(width);
    for (std::int64_t part = begin; part < end; ++part) sum_part(part, block);
  });
  for (std::size_t part = 1; part < static_cast<std::size_t>(parts); ++part) {
    for (std::size_t i = 0; i < width; ++i) sums[i] += sums[width * part + i];
  }
  sums.resize(width);
  return sums;
}

/// Calls work(first element, row count) for shares of the rows, on several threads if there is much
/// to do.
template <typename Work>
void for_rows(NormExtent extent, const Work& work) {
  const std::int64_t grain = kGrain / std::max<std::int64_t>(extent.channels, 1) + 1;
  cpu::parallel_ranges(extent.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    work(begin * extent.channels, end - begin);
  });
}

std::vector<float> shift_near_mean(const float* x, NormExtent extent) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  const std::int64_t used = std::min(kShiftRows, extent.rows);
  std::vector<float> shift(channels);
  for (std::int64_t i = 0; i < used; ++i) {
    const float* row = x + extent.rows * i / used * extent.channels;
    for (std::size_t c = 0; c < channels; ++c) shift[c] += row[c] / static_cast<float>(used);
  }
  return shift;
}

/// The means as float, and what that leaves out.
struct SplitMean {
  std::vector<float> mean;
  std::vector<double> rest;
};

SplitMean split_mean(const double* statistics, std::size_t channels) {
  SplitMean split{std::vector<float>(channels), std::vector<double>(channels)};
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = statistics[1 + c];
    split.mean[c] = static_cast<float>(mean);
    split.rest[c] = mean - static_cast<double>(split.mean[c]);
  }
  return split;
}

double factor(const float* gamma, std::size_t channel) {
  return gamma == nullptr ? 1.0 : static_cast<double>(gamma[channel]);
}

class CpuNormKernels final : public NormKernels {
 public:
  void batch_statistics(NormExtent extent, const float* x, double* statistics) override;
  bool finish_statistics(std::int64_t channels, double eps, double momentum,
                         RunningStatistics running, double* statistics) override;
  void statistics_from_running(std::int64_t channels, double eps, const float* running_mean,
                               const float* running_variance, double* statistics) override;
  void normalise(NormExtent extent, const float* x, const double* statistics, const float* gamma,
                 const float* beta, float* y) override;
  void backward_sums(NormExtent extent, const float* dy, const float* x, const double* statistics,
                     double* sums) override;
  void accumulate_affine_gradients(std::int64_t channels, const double* sums, float* dgamma,
                                   float* dbeta) override;
  void backward_data(NormExtent extent, const float* dy, const float* x, const double* statistics,
                     const float* gamma, const double* sums, float* dx) override;
};

void CpuNormKernels::batch_statistics(NormExtent extent, const float* x, double* statistics) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  const auto count = static_cast<double>(extent.rows);
  const std::vector<float> shift = shift_near_mean(x, extent);
  const std::vector<double> sums = sum_rows(extent, [&](std::int64_t begin, std::int64_t rows,
                                                        float* first, float* second) {
    cpu::add_rows(x + begin * extent.channels, rows, extent.channels, shift.data(), first, second);
  });
  statistics[0] = count;
  for (std::size_t c = 0; c < channels; ++c) {
    const Moments local =
        moments_about(static_cast<double>(shift[c]), count, sums[c], sums[channels + c]);
    const PackedMoments packed = pack(count, local);
    statistics[1 + c] = packed.sum;
    statistics[1 + channels + c] = packed.square_sum;
  }
}

bool CpuNormKernels::finish_statistics(std::int64_t channels, double eps, double momentum,
                                       RunningStatistics running, double* statistics) {
  const double count = statistics[0];
  if (count == 1) return false;
  double* first = statistics + 1;
  double* second = first + channels;
  for (std::int64_t c = 0; c < channels; ++c) {
    const Moments moments = unpack(count, {.sum = first[c], .square_sum = second[c]});
    first[c] = moments.mean;
    second[c] = 1 / std::sqrt(biased_variance(count, moments.m2) + eps);
    if (running.mean == nullptr || count == 0) continue;
    running.mean[c] = moved_towards(running.mean[c], moments.mean, momentum);
    running.variance[c] =
        moved_towards(running.variance[c], unbiased_variance(count, moments.m2), momentum);
  }
  return true;
}

void CpuNormKernels::statistics_from_running(std::int64_t channels, double eps,
                                             const float* running_mean,
                                             const float* running_variance, double* statistics) {
  statistics[0] = 0;
  for (std::int64_t c = 0; c < channels; ++c) {
    statistics[1 + c] = static_cast<double>(running_mean[c]);
    statistics[1 + channels + c] = 1 / std::sqrt(static_cast<double>(running_variance[c]) + eps);
  }
}

void CpuNormKernels::normalise(NormExtent extent, const float* x, const double* statistics,
                               const float* gamma, const float* beta, float* y) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  const double* inv_std = statistics + 1 + channels;
  const SplitMean split = split_mean(statistics, channels);
  std::vector<float> scale(channels);
  std::vector<float> offset(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const double slope = factor(gamma, c) * inv_std[c];
    scale[c] = static_cast<float>(slope);
    offset[c] = static_cast<float>((beta == nullptr ? 0.0 : static_cast<double>(beta[c])) -
                                   slope * split.rest[c]);
  }
  for_rows(extent, [&](std::int64_t start, std::int64_t rows) {
    cpu::scale_rows(x + start, rows, extent.channels, split.mean.data(), scale.data(),
                    offset.data(), y + start);
  });
}

void CpuNormKernels::backward_sums(NormExtent extent, const float* dy, const float* x,
                                   const double* statistics, double* sums) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  const double* inv_std = statistics + 1 + channels;
  const SplitMean split = split_mean(statistics, channels);
  const std::vector<double> local =
      sum_rows(extent, [&](std::int64_t begin, std::int64_t rows, float* first, float* second) {
        const std::int64_t start = begin * extent.channels;
        cpu::add_gradient_rows(dy + start, x + start, rows, extent.channels, split.mean.data(),
                               first, second);
      });
  for (std::size_t c = 0; c < channels; ++c) {
    sums[c] = local[c];
    sums[channels + c] = inv_std[c] * (local[channels + c] - split.rest[c] * local[c]);
  }
}

void CpuNormKernels::accumulate_affine_gradients(std::int64_t channels, const double* sums,
                                                 float* dgamma, float* dbeta) {
  for (std::int64_t c = 0; c < channels; ++c) {
    if (dbeta != nullptr) dbeta[c] += static_cast<float>(sums[c]);
    if (dgamma != nullptr) dgamma[c] += static_cast<float>(sums[channels + c]);
  }
}

void CpuNormKernels::backward_data(NormExtent extent, const float* dy, const float* x,
                                   const double* statistics, const float* gamma, const double* sums,
                                   float* dx) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  const double count = statistics[0];
  const double* inv_std = statistics + 1 + channels;
  const SplitMean split = split_mean(statistics, channels);
  std::vector<float> scale(channels);
  std::vector<float> slope(channels);
  std::vector<float> offset(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const double outer = factor(gamma, c) * inv_std[c];
    scale[c] = static_cast<float>(outer);
    if (sums == nullptr) continue;
    const double inner = -outer * inv_std[c] * sums[channels + c] / count;
    slope[c] = static_cast<float>(inner);
    offset[c] = static_cast<float>(-outer * sums[c] / count - inner * split.rest[c]);
  }
  for_rows(extent, [&](std::int64_t start, std::int64_t rows) {
    cpu::combine_rows(dy + start, x + start, rows, extent.channels, split.mean.data(), scale.data(),
                      slope.data(), offset.data(), dx + start);
  });
}

}  // namespace

std::unique_ptr<NormKernels> make_cpu_norm_kernels() {
  return std::make_unique<CpuNormKernels>();
}

}  // namespace dlaunch::nn
