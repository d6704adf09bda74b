// NormKernels on CPU. Sums run in float over short blocks of rows about a shift near the mean, and
// in double over blocks and threads. The mean is used as a float and its remainder, so that
// normalising loses nothing where the mean is large against the deviation. OpenMP threads help
// where there is enough to do; results do not depend on their number.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "nn/core/batch_statistics.h"
#include "nn/core/norm_coefficients.h"
#include "nn/cpu/activation.h"
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

double factor(const float* gamma, std::size_t channel) {
  return gamma == nullptr ? 1.0 : static_cast<double>(gamma[channel]);
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

class CpuNormKernels final : public NormKernels {
 public:
  void batch_statistics(NormExtent extent, ConstArrayRef x, double* statistics) override;
  bool finish_statistics(std::int64_t channels, double eps, double momentum,
                         RunningStatistics running, double* statistics) override;
  void statistics_from_running(std::int64_t channels, double eps, const float* running_mean,
                               const float* running_variance, double* statistics) override;
  void normalise(NormExtent extent, ConstArrayRef x, const double* statistics, const float* gamma,
                 const float* beta, const NormEpilogue& epilogue, ArrayRef y) override;
  void backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x, const double* statistics,
                     double* sums) override;
  void masked_backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x, ConstArrayRef y,
                            const double* statistics, double* sums, ArrayRef masked) override;
  void accumulate_affine_gradients(std::int64_t channels, const double* sums, float* dgamma,
                                   float* dbeta) override;
  void backward_data(NormExtent extent, ConstArrayRef dy, ConstArrayRef x, const double* statistics,
                     const float* gamma, const double* sums, ArrayRef dx) override;

 private:
  template <typename AddBlock>
  void sum_rows(NormExtent extent, const AddBlock& add_block);
  template <typename T>
  void find_shift_near_mean(NormExtent extent, const T* x);
  void split_mean(const double* statistics, std::size_t channels);
  void finish_backward_sums(std::size_t channels, const double* statistics, double* sums) const;

  // Memory of one call, kept so that the next one need not allocate. Per channel:
  std::vector<float> shift_;  // near the mean, or the mean as a float
  std::vector<double> rest_;  // of the mean, what the float leaves out
  std::vector<float> scale_;
  std::vector<float> slope_;
  std::vector<float> offset_;
  std::vector<double> sums_;   // per part: first sums, second sums
  std::vector<float> blocks_;  // the same of the block being summed
};

/// Two sums per channel over all rows, in double, at the beginning of sums_: first the C first
/// ones, then the C second ones. add_block(first row, row count, first, second) adds a short block
/// of rows in float.
template <typename AddBlock>
void CpuNormKernels::sum_rows(NormExtent extent, const AddBlock& add_block) {
  const auto width = static_cast<std::size_t>(2 * extent.channels);
  const std::int64_t parts =
      std::clamp<std::int64_t>(extent.rows * extent.channels / kElementsPerPart, 1, kMaxParts);
  sums_.assign(width * static_cast<std::size_t>(parts), 0.0);
  blocks_.resize(width * static_cast<std::size_t>(parts));
  cpu::parallel_ranges(parts, 1, [&](std::int64_t first_part, std::int64_t end_part) {
    for (std::int64_t part = first_part; part < end_part; ++part) {
      double* sums = sums_.data() + width * static_cast<std::size_t>(part);
      float* block = blocks_.data() + width * static_cast<std::size_t>(part);
      const std::int64_t end = extent.rows * (part + 1) / parts;
      for (std::int64_t row = extent.rows * part / parts; row < end; row += kBlockRows) {
        std::fill(block, block + width, 0.0F);
        add_block(row, std::min(kBlockRows, end - row), block, block + extent.channels);
        for (std::size_t i = 0; i < width; ++i) sums[i] += static_cast<double>(block[i]);
      }
    }
  });
  for (std::size_t part = 1; part < static_cast<std::size_t>(parts); ++part) {
    for (std::size_t i = 0; i < width; ++i) sums_[i] += sums_[width * part + i];
  }
}

template <typename T>
void CpuNormKernels::find_shift_near_mean(NormExtent extent, const T* x) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  const std::int64_t used = std::min(kShiftRows, extent.rows);
  shift_.assign(channels, 0.0F);
  for (std::int64_t i = 0; i < used; ++i) {
    const T* row = x + extent.rows * i / used * extent.channels;
    const float share = 1.0F / static_cast<float>(used);
    for (std::size_t c = 0; c < channels; ++c) shift_[c] += cpu::load(row[c]) * share;
  }
}

/// The means as float, in shift_, and what that leaves out, in rest_.
void CpuNormKernels::split_mean(const double* statistics, std::size_t channels) {
  shift_.resize(channels);
  rest_.resize(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const SplitMean mean = split(statistics[1 + c]);
    shift_[c] = mean.shift;
    rest_[c] = mean.rest;
  }
}

void CpuNormKernels::batch_statistics(NormExtent extent, ConstArrayRef x, double* statistics) {
  cpu::visit_activation(x.dtype, [&]<typename T>() {
    const T* values = as<T>(x);
    find_shift_near_mean(extent, values);
    sum_rows(extent, [&](std::int64_t begin, std::int64_t rows, float* first, float* second) {
      cpu::add_rows(values + begin * extent.channels, rows, extent.channels, shift_.data(), first,
                    second);
    });
  });
  const auto channels = static_cast<std::size_t>(extent.channels);
  const auto count = static_cast<double>(extent.rows);
  statistics[0] = count;
  for (std::size_t c = 0; c < channels; ++c) {
    const Moments local =
        moments_about(static_cast<double>(shift_[c]), count, sums_[c], sums_[channels + c]);
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

void CpuNormKernels::normalise(NormExtent extent, ConstArrayRef x, const double* statistics,
                               const float* gamma, const float* beta, const NormEpilogue& epilogue,
                               ArrayRef y) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  const double* inv_std = statistics + 1 + channels;
  shift_.resize(channels);
  scale_.resize(channels);
  offset_.resize(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const NormaliseCoefficients of =
        normalise_coefficients(statistics[1 + c], inv_std[c], factor(gamma, c),
                               beta == nullptr ? 0.0 : static_cast<double>(beta[c]));
    shift_[c] = of.shift;
    scale_[c] = of.scale;
    offset_[c] = of.offset;
  }
  const float floor = epilogue.relu ? 0.0F : -std::numeric_limits<float>::infinity();
  cpu::visit_activation(x.dtype, [&]<typename T>() {
    const T* from = as<T>(x);
    const T* residual = as<T>(epilogue.residual);
    T* to = as<T>(y);
    for_rows(extent, [&](std::int64_t start, std::int64_t rows) {
      if (residual == nullptr) {
        cpu::scale_rows(from + start, rows, extent.channels, shift_.data(), scale_.data(),
                        offset_.data(), floor, to + start);
      } else {
        cpu::scale_and_add_rows(from + start, residual + start, rows, extent.channels,
                                shift_.data(), scale_.data(), offset_.data(), floor, to + start);
      }
    });
  });
}

void CpuNormKernels::backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                                   const double* statistics, double* sums) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  split_mean(statistics, channels);
  cpu::visit_activation(x.dtype, [&]<typename T>() {
    sum_rows(extent, [&](std::int64_t begin, std::int64_t rows, float* first, float* second) {
      const std::int64_t start = begin * extent.channels;
      cpu::add_gradient_rows(as<T>(dy) + start, as<T>(x) + start, rows, extent.channels,
                             shift_.data(), first, second);
    });
  });
  finish_backward_sums(channels, statistics, sums);
}

void CpuNormKernels::masked_backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                                          ConstArrayRef y, const double* statistics, double* sums,
                                          ArrayRef masked) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  split_mean(statistics, channels);
  cpu::visit_activation(x.dtype, [&]<typename T>() {
    sum_rows(extent, [&](std::int64_t begin, std::int64_t rows, float* first, float* second) {
      const std::int64_t start = begin * extent.channels;
      cpu::add_masked_gradient_rows(as<T>(dy) + start, as<T>(x) + start, as<T>(y) + start, rows,
                                    extent.channels, shift_.data(), first, second,
                                    as<T>(masked) + start);
    });
  });
  finish_backward_sums(channels, statistics, sums);
}

/// From the sums in sums_, which are about the means as floats.
void CpuNormKernels::finish_backward_sums(std::size_t channels, const double* statistics,
                                          double* sums) const {
  const double* inv_std = statistics + 1 + channels;
  for (std::size_t c = 0; c < channels; ++c) {
    sums[c] = sums_[c];
    sums[channels + c] = sum_with_xhat({.shift = shift_[c], .rest = rest_[c]}, inv_std[c], sums_[c],
                                       sums_[channels + c]);
  }
}

void CpuNormKernels::accumulate_affine_gradients(std::int64_t channels, const double* sums,
                                                 float* dgamma, float* dbeta) {
  for (std::int64_t c = 0; c < channels; ++c) {
    if (dbeta != nullptr) dbeta[c] += static_cast<float>(sums[c]);
    if (dgamma != nullptr) dgamma[c] += static_cast<float>(sums[channels + c]);
  }
}

void CpuNormKernels::backward_data(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                                   const double* statistics, const float* gamma, const double* sums,
                                   ArrayRef dx) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  const double count = statistics[0];
  const double* inv_std = statistics + 1 + channels;
  shift_.resize(channels);
  scale_.resize(channels);
  slope_.resize(channels);
  offset_.resize(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = statistics[1 + c];
    const double slope = factor(gamma, c);
    const BackwardCoefficients of =
        sums == nullptr
            ? backward_coefficients(mean, inv_std[c], slope)
            : backward_coefficients(mean, inv_std[c], slope, count, sums[c], sums[channels + c]);
    shift_[c] = of.shift;
    scale_[c] = of.scale;
    slope_[c] = of.slope;
    offset_[c] = of.offset;
  }
  cpu::visit_activation(x.dtype, [&]<typename T>() {
    for_rows(extent, [&](std::int64_t start, std::int64_t rows) {
      cpu::combine_rows(as<T>(dy) + start, as<T>(x) + start, rows, extent.channels, shift_.data(),
                        scale_.data(), slope_.data(), offset_.data(), as<T>(dx) + start);
    });
  });
}

}  // namespace

std::unique_ptr<NormKernels> make_cpu_norm_kernels() {
  return std::make_unique<CpuNormKernels>();
}

}  // namespace dlaunch::nn
