#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

#include "nn/cpu/kernel_groups.h"
#include "nn/cpu/optimizer_loops.h"
#include "nn/cpu/parallel.h"

namespace dlaunch::nn {
namespace {

// Elements for which one more thread is worth waking; also the parts of a sum, which so does not
// depend on the number of threads.
constexpr std::int64_t kGrain = 1 << 16;

/// function(begin, end) added up over parts of [0, count), in their order.
template <typename Function>
double sum_over_parts(std::int64_t count, const Function& function) {
  std::vector<double> sums(static_cast<std::size_t>((count + kGrain - 1) / kGrain));
  const auto parts = static_cast<std::int64_t>(sums.size());
  cpu::parallel_ranges(parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part)
      sums[static_cast<std::size_t>(part)] =
          function(part * kGrain, std::min(count, (part + 1) * kGrain));
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

class CpuOptimizerKernels final : public OptimizerKernels {
 public:
  void sgd_step(std::span<const SgdRange> ranges, const float* skip_or_null,
                bool nesterov) override;
  void adam_step(std::span<const AdamRange> ranges, const float* skip_or_null) override;
  void muon_directions(std::span<const MuonMatrix> matrices, const float* skip_or_null,
                       bool nesterov) override;
  void muon_step(std::span<const MuonMatrix> matrices, const float* skip_or_null) override;
  void begin_scaled_step(const LossScaleState* state, const LossScaleStep* step, float* gradient,
                         float* not_finite) override {
    *gradient = scaled_loss_gradient(*state, *step);
    *not_finite = 0;
  }
  void unscale(std::int64_t count, const LossScaleState* state, const LossScaleStep* step,
               float* gradients, float* not_finite) override;
  void move_loss_scale(const LossScaleRule& rule, const float* not_finite,
                       LossScaleState* state) override {
    *state = next_loss_scale(rule, *not_finite == 0, *state);
  }
  void move_averages(std::span<const AveragedValues> averages, double decay) override;
  void add_squares(std::int64_t count, const float* values, double* sum) override {
    *sum += sum_of_squares(count, values);
  }
  void clip_norm(std::int64_t count, const double* squares, double max_norm,
                 float* values) override;
  double sum_of_squares(std::int64_t count, const float* values) override;
};

bool is_set(const float* skip_or_null) {
  return skip_or_null != nullptr && *skip_or_null != 0;
}

void sgd_step_of(const SgdRange& range, bool nesterov) {
  cpu::parallel_ranges(range.count, kGrain, [&](std::int64_t first, std::int64_t end) {
    const std::int64_t size = end - first;
    const float* g = range.gradients + first;
    float* p = range.parameters + first;
    if (range.velocities == nullptr) {
      cpu::sgd_plain(size, *range.factors, g, p);
    } else if (nesterov) {
      cpu::sgd_nesterov(size, *range.factors, g, range.velocities + first, p);
    } else {
      cpu::sgd_momentum(size, *range.factors, g, range.velocities + first, p);
    }
  });
}

void CpuOptimizerKernels::sgd_step(std::span<const SgdRange> ranges, const float* skip_or_null,
                                   bool nesterov) {
  if (is_set(skip_or_null)) return;
  for (const SgdRange& range : ranges) sgd_step_of(range, nesterov);
}

void CpuOptimizerKernels::adam_step(std::span<const AdamRange> ranges, const float* skip_or_null) {
  if (is_set(skip_or_null)) return;
  for (const AdamRange& range : ranges)
    cpu::parallel_ranges(range.count, kGrain, [&](std::int64_t first, std::int64_t end) {
      cpu::adam(end - first, *range.factors, range.gradients + first, range.means + first,
                range.squares + first, range.parameters + first);
    });
}

void CpuOptimizerKernels::muon_directions(std::span<const MuonMatrix> matrices,
                                          const float* skip_or_null, bool nesterov) {
  if (is_set(skip_or_null)) return;
  for (const MuonMatrix& m : matrices) {
    const double squares = sum_over_parts(m.count, [&](std::int64_t begin, std::int64_t end) {
      return cpu::muon_velocity(begin, end, *m.factors, nesterov, m.gradients, m.velocities);
    });
    const float factor = factor_to_norm(1, std::sqrt(squares), kMuonEps);
    cpu::parallel_ranges(m.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      cpu::muon_scaled_direction(begin, end, *m.factors, nesterov, factor, m.gradients,
                                 m.velocities, m.x);
    });
    if (m.norm_factor != nullptr)
      *m.norm_factor = factor_to_norm(std::sqrt(static_cast<double>(m.rows)),
                                      std::sqrt(sum_of_squares(m.count, m.parameters)), 0);
  }
}

void CpuOptimizerKernels::muon_step(std::span<const MuonMatrix> matrices,
                                    const float* skip_or_null) {
  if (is_set(skip_or_null)) return;
  for (const MuonMatrix& m : matrices) {
    const float norm_factor = m.norm_factor == nullptr ? 1.0F : *m.norm_factor;
    cpu::parallel_ranges(m.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      cpu::muon_step(begin, end, *m.factors, norm_factor, m.x, m.parameters);
    });
  }
}

void CpuOptimizerKernels::unscale(std::int64_t count, const LossScaleState* state,
                                  const LossScaleStep* step, float* gradients, float* not_finite) {
  const float factor = unscaling_factor(*state, *step);
  std::atomic<bool> all_finite = true;
  cpu::parallel_ranges(count, kGrain, [&](std::int64_t first, std::int64_t end) {
    if (!cpu::scale_and_check(end - first, factor, gradients + first)) all_finite = false;
  });
  if (!all_finite) *not_finite = 1;
}

void CpuOptimizerKernels::move_averages(std::span<const AveragedValues> averages, double decay) {
  for (const AveragedValues& one : averages)
    cpu::parallel_ranges(one.count, kGrain, [&](std::int64_t first, std::int64_t end) {
      cpu::move_average(end - first, average_weight(decay), one.values + first,
                        one.average + first);
    });
}

void CpuOptimizerKernels::clip_norm(std::int64_t count, const double* squares, double max_norm,
                                    float* values) {
  const float factor = clip_factor(std::sqrt(*squares), max_norm);
  if (factor == 1.0F) return;
  cpu::parallel_ranges(count, kGrain, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t i = first; i < end; ++i) values[i] *= factor;
  });
}

double CpuOptimizerKernels::sum_of_squares(std::int64_t count, const float* values) {
  return sum_over_parts(count, [&](std::int64_t begin, std::int64_t end) {
    return cpu::sum_of_squares(end - begin, values + begin);
  });
}

}  // namespace

std::unique_ptr<OptimizerKernels> make_cpu_optimizer_kernels() {
  return std::make_unique<CpuOptimizerKernels>();
}

}  // namespace dlaunch::nn
