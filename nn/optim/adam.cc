#include "nn/optim/adam.h"

#include <array>
#include <cmath>
#include <utility>

#include "nn/core/optimizer_formulas.h"

namespace dlaunch::nn {
namespace {

void check(const AdamOptions& options) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  if (!is_beta(options.beta1) || !is_beta(options.beta2))
    throw Error("adam: both betas must be in [0, 1)");
  if (!(options.eps > 0)) throw Error("adam: eps must be above 0");
  options.weight_decay.check("adam: weight decay");
  options.rate_factors.check("adam: a factor of the learning rate");
}

}  // namespace

Adam::Adam(FlatParameters parameters, AdamOptions options)
    : Optimizer(std::move(parameters)),
      options_(options),
      means_(make_state()),
      squares_(make_state()),
      steps_(Tensor::zeros(means_.backend(), {1})),
      version_(steps_.weights().version),
      ranges_(
          optimizer_ranges(this->parameters().views, options.weight_decay, options.rate_factors)),
      factors_(means_.backend(), ranges_.size()) {
  check(options_);
}

void Adam::begin_step(double learning_rate) {
  // Read only after a checkpoint was: a device would have to be waited for.
  if (steps_.weights().version != version_) counted_ = static_cast<double>(steps_.item());
  ++counted_;
  steps_.set_values<float>(std::array{static_cast<float>(counted_)});
  version_ = steps_.weights().version;

  AdamArguments arguments{.beta1 = options_.beta1,
                          .beta2 = options_.beta2,
                          .eps = options_.eps,
                          .correction1 = 1 - std::pow(options_.beta1, counted_),
                          .correction2 = 1 - std::pow(options_.beta2, counted_),
                          .decoupled_decay = options_.decoupled_decay};
  std::vector<AdamFactors> factors;
  for (const OptimizerRange& range : ranges_) {
    arguments.learning_rate = rate_of(range, learning_rate);
    arguments.weight_decay = range.weight_decay;
    factors.push_back(adam_factors(arguments, std::sqrt(arguments.correction2)));
  }
  factors_.set(factors);
}

void Adam::update(std::int64_t begin, std::int64_t end) {
  const float* gradients = parameters().gradients.data<const float>();
  float* values = parameters().values.data<float>();
  float* means = means_.data<float>();
  float* squares = squares_.data<float>();
  std::vector<AdamRange> parts;
  for_each_part(ranges_, begin, end,
                [&](const OptimizerRange& range, std::int64_t first, std::int64_t count) {
                  parts.push_back({.count = count,
                                   .factors = factors_.data() + (&range - ranges_.data()),
                                   .gradients = gradients + first,
                                   .means = means + first,
                                   .squares = squares + first,
                                   .parameters = values + first});
                });
  parameters().values.backend().optimizer().adam_step(parts, skip());
}

std::vector<NamedTensor> Adam::flat_state() const {
  return {{"mean", means_}, {"square", squares_}};
}

std::vector<NamedTensor> Adam::scalars() const {
  return {{"steps", steps_}};
}

std::size_t Adam::state_bytes() const {
  return static_cast<std::size_t>(means_.size() + squares_.size()) * sizeof(float);
}

}  // namespace dlaunch::nn
