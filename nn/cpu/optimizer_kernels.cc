#include <algorithm>
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
  void sgd_step(std::int64_t count, const SgdFactors* factors, bool nesterov,
                const float* gradients, float* velocities, float* parameters) override;
  void adam_step(std::int64_t count, const AdamFactors* factors, const float* gradients,
                 float* means, float* squares, float* parameters) override;
  void move_averages(std::span<const AveragedValues> averages, double decay) override;
  void inverse_norm(std::int64_t count, const float* values, double eps, float* result) override;
  double sum_of_squares(std::int64_t count, const float* values) override;
};

void CpuOptimizerKernels::sgd_step(std::int64_t count, const SgdFactors* factors, bool nesterov,
                                   const float* gradients, float* velocities, float* parameters) {
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
                                    const float* gradients, float* means, float* squares,
                                    float* parameters) {
  cpu::parallel_ranges(count, kGrain, [&](std::int64_t first, std::int64_t end) {
    cpu::adam(end - first, *factors, gradients + first, means + first, squares + first,
              parameters + first);
  });
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
