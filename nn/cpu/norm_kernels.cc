// NormKernels on CPU. Sums run in float over short blocks of rows about a shift near the mean, and
// in double over blocks and threads. The mean is used as a float and its remainder, so that
// normalising loses nothing where the mean is large against the deviation. OpenMP threads help
// where there is enough to do; results do not depend on their number.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "nn/core/batch_statistics.h"
#include "nn/core/norm_coefficients.h"
#include "nn/cpu/activation.h"
#include "nn/cpu/activation_functions.h"
#include "nn/cpu/kernel_groups.h"
#include "nn/cpu/norm_rows.h"
#include "nn/cpu/parallel.h"
#include "nn/cpu/row_sums.h"

namespace dlaunch::nn {
namespace {

// Rows, evenly spread, whose mean is the shift. However odd those rows are, their mean s is not far
// from the batch's mean m in units of its variance v: (s - m)^2 <= v rows / kShiftRows
// (Cauchy-Schwarz); usually it is a fraction of v.
constexpr std::int64_t kShiftRows = 16;
// Elements for which one more thread is worth waking.
constexpr std::int64_t kGrain = 1 << 15;

double factor(const float* gamma, std::size_t channel) {
  return gamma == nullptr ? 1.0 : static_cast<double>(gamma[channel]);
}

/// Calls visit(activation), of activation_functions.h.
template <typename Visit>
void visit_norm_activation(const NormFunction& function, const Visit& visit) {
  switch (function.activation) {
    case NormActivation::kNone:
      return visit(cpu::NoActivation{});
    case NormActivation::kRelu:
      return visit(cpu::Relu{});
    case NormActivation::kGelu:
      return visit(cpu::Gelu{});
    case NormActivation::kSilu:
      return visit(cpu::Silu{});
    case NormActivation::kCelu:
      return visit(cpu::Celu{function.alpha});
  }
}

/// A part of a batch, and where it lies.
struct Part {
  NormExtent extent;
  std::int64_t index = 0;
  std::int64_t first = 0;  // element

  ConstArrayRef of(ConstArrayRef batch) const {
    return {address(batch.data, batch.dtype), batch.dtype};
  }
  ArrayRef of(ArrayRef batch) const { return {address(batch.data, batch.dtype), batch.dtype}; }
  /// Of arrays that have so much for each part; null stays null.
  template <typename T>
  T* of(T* values, std::int64_t size) const {
    return values == nullptr ? nullptr : values + index * size;
  }
  NormFunction of(NormFunction function) const {
    function.statistics = of(function.statistics, norm_statistics_size(extent.channels));
    return function;
  }

 private:
  template <typename Void>
  Void* address(Void* data, DType dtype) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    if (data == nullptr) return nullptr;
    return static_cast<Byte*>(data) + first * static_cast<std::int64_t>(size_of(dtype));
  }
};

/// Calls work(part) for all parts.
template <typename Work>
void for_parts(NormExtent extent, const Work& work) {
  for (std::int64_t i = 0; i < extent.parts.count; ++i) {
    work(Part{.extent = {.rows = extent.parts.size(extent.rows, i), .channels = extent.channels},
              .index = i,
              .first = extent.parts.begin(extent.rows, i) * extent.channels});
  }
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

/// A part's sums.
void add_to(AffineGradients gradients, std::int64_t channels, const double* sums) {
  for (std::int64_t c = 0; c < channels; ++c) {
    if (gradients.beta != nullptr) gradients.beta[c] += static_cast<float>(sums[c]);
    if (gradients.gamma != nullptr) gradients.gamma[c] += static_cast<float>(sums[channels + c]);
  }
}

class CpuNormKernels final : public NormKernels {
 public:
  bool batch_statistics(NormExtent extent, ConstArrayRef x, const StatisticsFinish* finish,
                        double* statistics) override {
    for_parts(extent, [&](const Part& part) {
      sum_part(part.extent, part.of(x), part.of(statistics, norm_statistics_size(extent.channels)));
    });
    return finish == nullptr ||
           finish_statistics(extent.parts.count, extent.channels, *finish, statistics);
  }
  bool finish_statistics(std::int64_t parts, std::int64_t channels, const StatisticsFinish& finish,
                         double* statistics) override;
  void statistics_from_running(std::int64_t channels, double eps, const float* running_mean,
                               const float* running_variance, double* statistics) override;
  void normalise(NormExtent extent, ConstArrayRef x, const NormFunction& function,
                 ConstArrayRef residual, ArrayRef y) override {
    for_parts(extent, [&](const Part& part) {
      normalise_part(part.extent, part.of(x), part.of(function), part.of(residual), part.of(y));
    });
  }
  void backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                     const NormFunction& function, double* sums,
                     AffineGradients gradients) override {
    for_parts(extent, [&](const Part& part) {
      double* const own = part.of(sums, 2 * extent.channels);
      sum_gradients(part.extent, part.of(dy), part.of(x), part.of(function), own);
      add_to(gradients, extent.channels, own);
    });
  }
  void masked_backward_sums(NormExtent extent, ConstArrayRef dy, ConstArrayRef x, ConstArrayRef y,
                            const double* statistics, double* sums, AffineGradients gradients,
                            ArrayRef masked) override {
    for_parts(extent, [&](const Part& part) {
      double* const own = part.of(sums, 2 * extent.channels);
      sum_masked_gradients(part.extent, part.of(dy), part.of(x), part.of(y),
                           part.of(statistics, norm_statistics_size(extent.channels)), own,
                           part.of(masked));
      add_to(gradients, extent.channels, own);
    });
  }
  void backward_data(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                     const NormFunction& function, const double* sums, ArrayRef dx) override {
    for_parts(extent, [&](const Part& part) {
      combine_part(part.extent, part.of(dy), part.of(x), part.of(function),
                   part.of(sums, 2 * extent.channels), part.of(dx));
    });
  }

 private:
  // Of one part:
  void sum_part(NormExtent extent, ConstArrayRef x, double* statistics);
  void normalise_part(NormExtent extent, ConstArrayRef x, const NormFunction& function,
                      ConstArrayRef residual, ArrayRef y);
  void sum_gradients(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                     const NormFunction& function, double* sums);
  void sum_masked_gradients(NormExtent extent, ConstArrayRef dy, ConstArrayRef x, ConstArrayRef y,
                            const double* statistics, double* sums, ArrayRef masked);
  void combine_part(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                    const NormFunction& function, const double* sums, ArrayRef dx);

  template <typename AddBlock>
  void sum_rows(NormExtent extent, const AddBlock& add_block);
  template <typename T>
  void find_shift_near_mean(NormExtent extent, const T* x);
  cpu::NormaliseRows normalise_rows_of(const NormFunction& function, std::size_t channels);
  void finish_backward_sums(std::size_t channels, const double* statistics, double* sums) const;

  // Memory of one call, kept so that the next one need not allocate. Per channel:
  std::vector<float> shift_;  // near the mean, or the mean as a float
  std::vector<float> scale_;  // of NormaliseCoefficients
  std::vector<float> offset_;
  std::vector<float> dz_scale_;  // of BackwardCoefficients
  std::vector<float> slope_;
  std::vector<float> dx_offset_;
  cpu::RowSums sums_;  // first sums, second sums
};

/// Two sums per channel over all rows, in sums_: first the C first ones, then the C second ones.
/// add_block(first row, row count, first, second) adds a short block of rows in float.
template <typename AddBlock>
void CpuNormKernels::sum_rows(NormExtent extent, const AddBlock& add_block) {
  sums_.add_up(extent.rows, extent.channels, static_cast<std::size_t>(2 * extent.channels),
               [&](std::int64_t row, std::int64_t rows, float* sums) {
                 add_block(row, rows, sums, sums + extent.channels);
               });
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

/// In shift_, scale_ and offset_.
cpu::NormaliseRows CpuNormKernels::normalise_rows_of(const NormFunction& function,
                                                     std::size_t channels) {
  const double* means = function.statistics + 1;
  const double* inv_stds = means + channels;
  shift_.resize(channels);
  scale_.resize(channels);
  offset_.resize(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const NormaliseCoefficients of = normalise_coefficients(
        means[c], inv_stds[c], factor(function.gamma, c),
        function.beta == nullptr ? 0.0 : static_cast<double>(function.beta[c]));
    shift_[c] = of.shift;
    scale_[c] = of.scale;
    offset_[c] = of.offset;
  }
  return {shift_.data(), scale_.data(), offset_.data()};
}

void CpuNormKernels::sum_part(NormExtent extent, ConstArrayRef x, double* statistics) {
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
    const PackedMoments packed =
        pack(static_cast<double>(shift_[c]), count, sums_[c], sums_[channels + c]);
    statistics[1 + c] = packed.sum;
    statistics[1 + channels + c] = packed.square_sum;
  }
}

bool CpuNormKernels::finish_statistics(std::int64_t parts, std::int64_t channels,
                                       const StatisticsFinish& finish, double* statistics) {
  const RunningStatistics& running = finish.running;
  const std::int64_t size = norm_statistics_size(channels);
  for (std::int64_t part = 0; part < parts; ++part)
    if (statistics[part * size] == 1) return false;
  for (std::int64_t c = 0; c < channels; ++c) {
    PartMeans means;
    for (std::int64_t part = 0; part < parts; ++part) {
      const double count = statistics[part * size];
      double& first = statistics[part * size + 1 + c];
      double& second = statistics[part * size + 1 + channels + c];
      const Moments moments = unpack(count, {.sum = first, .square_sum = second});
      first = moments.mean;
      second = 1 / std::sqrt(biased_variance(count, moments.m2) + finish.eps);
      means.add(count, moments);
    }
    if (running.mean != nullptr) means.move(running.mean[c], running.variance[c], finish.momentum);
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

void CpuNormKernels::normalise_part(NormExtent extent, ConstArrayRef x,
                                    const NormFunction& function, ConstArrayRef residual,
                                    ArrayRef y) {
  const cpu::NormaliseRows rows_of =
      normalise_rows_of(function, static_cast<std::size_t>(extent.channels));
  cpu::visit_activation(x.dtype, [&]<typename T>() {
    const T* from = as<T>(x);
    const T* added = as<T>(residual);
    T* to = as<T>(y);
    if (added == nullptr) {
      visit_norm_activation(function, [&](const auto& activation) {
        for_rows(extent, [&](std::int64_t start, std::int64_t rows) {
          cpu::normalise_rows(activation, from + start, rows, extent.channels, rows_of, to + start);
        });
      });
      return;
    }
    const bool relu = function.activation == NormActivation::kRelu;
    const float floor = relu ? 0.0F : -std::numeric_limits<float>::infinity();
    for_rows(extent, [&](std::int64_t start, std::int64_t rows) {
      cpu::normalise_and_add_rows(from + start, added + start, rows, extent.channels, rows_of,
                                  floor, to + start);
    });
  });
}

void CpuNormKernels::sum_gradients(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                                   const NormFunction& function, double* sums) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  const cpu::NormaliseRows rows_of = normalise_rows_of(function, channels);
  cpu::visit_activation(x.dtype, [&]<typename T>() {
    visit_norm_activation(function, [&](const auto& activation) {
      sum_rows(extent, [&](std::int64_t begin, std::int64_t rows, float* first, float* second) {
        const std::int64_t start = begin * extent.channels;
        cpu::add_gradient_rows(activation, as<T>(dy) + start, as<T>(x) + start, rows,
                               extent.channels, rows_of, first, second);
      });
    });
  });
  finish_backward_sums(channels, function.statistics, sums);
}

void CpuNormKernels::sum_masked_gradients(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                                          ConstArrayRef y, const double* statistics, double* sums,
                                          ArrayRef masked) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  shift_.resize(channels);
  for (std::size_t c = 0; c < channels; ++c) shift_[c] = split(statistics[1 + c]).shift;
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
  const double* means = statistics + 1;
  const double* inv_stds = means + channels;
  for (std::size_t c = 0; c < channels; ++c) {
    sums[c] = sums_[c];
    sums[channels + c] = sum_with_xhat(split(means[c]), inv_stds[c], sums_[c], sums_[channels + c]);
  }
}

void CpuNormKernels::combine_part(NormExtent extent, ConstArrayRef dy, ConstArrayRef x,
                                  const NormFunction& function, const double* sums, ArrayRef dx) {
  const auto channels = static_cast<std::size_t>(extent.channels);
  const double count = function.statistics[0];
  const double* means = function.statistics + 1;
  const double* inv_stds = means + channels;
  dz_scale_.resize(channels);
  slope_.resize(channels);
  dx_offset_.resize(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    const double gamma = factor(function.gamma, c);
    const BackwardCoefficients of =
        sums == nullptr ? backward_coefficients(means[c], inv_stds[c], gamma, 0, 0, 0)
                        : backward_coefficients(means[c], inv_stds[c], gamma, 1 / count, sums[c],
                                                sums[channels + c]);
    dz_scale_[c] = of.scale;
    slope_[c] = of.slope;
    dx_offset_[c] = of.offset;
  }
  const cpu::NormaliseRows rows_of = normalise_rows_of(function, channels);
  const cpu::CombineRows combine{dz_scale_.data(), slope_.data(), dx_offset_.data()};
  cpu::visit_activation(x.dtype, [&]<typename T>() {
    visit_norm_activation(function, [&](const auto& activation) {
      for_rows(extent, [&](std::int64_t start, std::int64_t rows) {
        cpu::combine_rows(activation, as<T>(dy) + start, as<T>(x) + start, rows, extent.channels,
                          rows_of, combine, as<T>(dx) + start);
      });
    });
  });
}

}  // namespace

std::unique_ptr<NormKernels> make_cpu_norm_kernels() {
  return std::make_unique<CpuNormKernels>();
}

}  // namespace dlaunch::nn
