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

class CpuOptimizerKernels final : public OptimizerKernels {
 public:
  void sgd_step(std::int64_t count, const SgdFactors* factors, const float* skip_or_null,
                bool nesterov, const float* gradients, float* velocities,
                float* parameters) override;
  void adam_step(std::int64_t count, const AdamFactors* factors, const float* skip_or_null,
                 const float* gradients, float* means, float* squares, float* parameters) override;
  void restore(std::int64_t count, const float* skip, const float* saved, float* values) override {
    if (*skip != 0) std::copy_n(saved, count, values);
  }
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
  void inverse_norm(std::int64_t count, const float* values, double eps, float* result) override;
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

void CpuOptimizerKernels::sgd_step(std::int64_t count, const SgdFactors* factors,
                                   const float* skip_or_null, bool nesterov, const float* gradients,
                                   float* velocities, float* parameters) {
  if (is_set(skip_or_null)) return;
  cpu::parallel_ranges(count, kGrain, [&](std::int64_t first, std::int64_t end) {
    const std::int64_t size = end - first;
    const float* g = gradients + first;
    float* p = parameters + first;
    if (velocities == nullptr) {
      cpu::sgd_plain(size, *factors, g, p);
    } else if (nesterov) {
      cpu::sgd_nesterov(size, *factors, g, velocities + first, p);
    } else {
      cpu::sgd_momentum(size, *factors, g, velocities + first, p);
    }
  });
}

void CpuOptimizerKernels::adam_step(std::int64_t count, const AdamFactors* factors,
                                    const float* skip_or_null, const float* gradients, float* means,
                                    float* squares, float* parameters) {
  if (is_set(skip_or_null)) return;
  cpu::parallel_ranges(count, kGrain, [&](std::int64_t first, std::int64_t end) {
    cpu::adam(end - first, *factors, gradients + first, means + first, squares + first,
              parameters + first);
  });
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
      cpu::move_average(end - first, static_cast<float>(decay), one.values + first,
                        one.average + first);
    });
}

void CpuOptimizerKernels::inverse_norm(std::int64_t count, const float* values, double eps,
                                       float* result) {
  const double squares = sum_of_squares(count, values);
  *result = squares == 0 ? 0.0F : static_cast<float>(1 / (std::sqrt(squares) + eps));
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
  std::vector<double> sums(static_cast<std::size_t>((count + kGrain - 1) / kGrain));
  const auto parts = static_cast<std::int64_t>(sums.size());
  cpu::parallel_ranges(parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = part * kGrain;
      sums[static_cast<std::size_t>(part)] =
          cpu::sum_of_squares(std::min(kGrain, count - first), values + first);
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

std::unique_ptr<OptimizerKernels> make_cpu_optimizer_kernels() {
  return std::make_unique<CpuOptimizerKernels>();
}

}  // namespace dlaunch::nn
