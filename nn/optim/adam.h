// Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019), as torch.optim.Adam and AdamW
// define them (without amsgrad).
#pragma once

#include <cstdint>
#include <vector>

#include "nn/core/optimizer_kernels.h"
#include "nn/optim/optimizer.h"

namespace dlaunch::nn {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool decoupled_decay =
      false;  // AdamW: decay shrinks the parameter instead of joining the gradient
  WeightDecay weight_decay;
  PerKind rate_factors = PerKind::uniform(1);  // of the learning rate
};

class Adam : public Optimizer {
 public:
  /// Error unless both betas are in [0, 1), eps is above 0, and decay and factors are not negative.
  Adam(FlatParameters parameters, AdamOptions options);

  void begin_step(double learning_rate) override;
  void update(std::int64_t begin, std::int64_t end) override;
  /// "mean.NAME", "square.NAME", and "steps" (f32 [1]: exact up to 16 million).
  std::vector<NamedTensor> flat_state() const override;
  std::vector<NamedTensor> scalars() const override;
  std::size_t state_bytes() const override;

 private:
  AdamOptions options_;
  Tensor means_;
  Tensor squares_;
  Tensor steps_;           // on the backend, like all state
  double counted_ = 0;     // its value,
  std::uint64_t version_;  // unless somebody has written it since
  std::vector<OptimizerRange> ranges_;
  FactorTable<AdamFactors> factors_;  // of ranges_
};

}  // namespace dlaunch::nn
