// Stochastic gradient descent with momentum, as torch.optim.SGD defines it (without dampening).
#pragma once

#include <cstdint>
#include <vector>

#include "nn/core/optimizer_kernels.h"
#include "nn/optim/optimizer.h"

namespace dlaunch::nn {

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;  // needs momentum
  WeightDecay weight_decay;
  PerKind rate_factors = PerKind::uniform(1);  // of the learning rate

  /// Error for negative numbers, a momentum of 1 or more, or Nesterov without momentum.
  void check() const;
};

///   d = g + weight_decay p;  v = momentum v + d;  d = nesterov ? d + momentum v : v
///   p = p - learning_rate d
class Sgd : public Optimizer {
 public:
  /// Error for options that check() refuses.
  Sgd(FlatParameters parameters, SgdOptions options);

  void begin_step(double learning_rate) override;
  void update(std::int64_t begin, std::int64_t end) override;
  /// "velocity"; none without momentum.
  std::vector<NamedTensor> flat_state() const override;
  std::size_t state_bytes() const override;

 private:
  SgdOptions options_;
  Tensor velocities_;  // undefined without momentum
  std::vector<OptimizerRange> ranges_;
  FactorTable<SgdFactors> factors_;  // of ranges_
};

/// Of a step with the parameters of `range`.
SgdFactors sgd_factors(const SgdOptions& options, const OptimizerRange& range,
                       double learning_rate);
/// For kernels: what `ranges` have in common with elements [begin, end). Factors, in the backend's
/// memory, are those of each range.
std::vector<SgdRange> sgd_parts(const FlatParameters& parameters,
                                const std::vector<OptimizerRange>& ranges,
                                const SgdFactors* factors, float* velocities_or_null,
                                std::int64_t begin, std::int64_t end);

}  // namespace dlaunch::nn
