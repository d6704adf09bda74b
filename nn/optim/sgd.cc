#include "nn/optim/sgd.h"

#include <utility>

#include "nn/core/optimizer_kernels.h"

namespace dlaunch::nn {
namespace {

void check(const SgdOptions& options) {
  if (!(options.momentum >= 0 && options.momentum < 1))
    throw Error("sgd: momentum must be in [0, 1)");
  if (options.nesterov && options.momentum == 0) throw Error("sgd: Nesterov needs momentum");
  const WeightDecay& decay = options.weight_decay;
  if (!(decay.weight >= 0 && decay.bias >= 0 && decay.norm >= 0))
    throw Error("sgd: weight decay must not be negative");
}

}  // namespace

Sgd::Sgd(FlatParameters parameters, SgdOptions options)
    : Optimizer(std::move(parameters)),
      options_(options),
      ranges_(
          optimizer_ranges(this->parameters().views, options.weight_decay, options.rate_factors)) {
  check(options_);
  if (options_.momentum > 0) velocities_ = make_state();
}

void Sgd::update(std::int64_t begin, std::int64_t end) {
  const float* gradients = parameters().gradients.data<const float>();
  float* values = parameters().values.data<float>();
  float* velocities = velocities_.defined() ? velocities_.data<float>() : nullptr;
  OptimizerKernels& kernels = parameters().values.backend().optimizer();
  for_each_part(ranges_, begin, end,
                [&](const OptimizerRange& range, std::int64_t first, std::int64_t count) {
                  const SgdArguments arguments{.learning_rate = learning_rate_ * range.rate_factor,
                                               .momentum = options_.momentum,
                                               .weight_decay = range.weight_decay,
                                               .nesterov = options_.nesterov};
                  kernels.sgd_step(count, arguments, gradients + first,
                                   velocities == nullptr ? nullptr : velocities + first,
                                   values + first);
                });
}

std::vector<NamedTensor> Sgd::flat_state() const {
  if (!velocities_.defined()) return {};
  return {{"velocity", velocities_}};
}

std::size_t Sgd::state_bytes() const {
  return velocities_.defined() ? static_cast<std::size_t>(velocities_.size()) * sizeof(float) : 0;
}

}  // namespace dlaunch::nn
