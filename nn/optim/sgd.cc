#include "nn/optim/sgd.h"

#include <utility>

#include "nn/core/optimizer_formulas.h"

namespace dlaunch::nn {

void SgdOptions::check() const {
  if (!(momentum >= 0 && momentum < 1)) throw Error("sgd: momentum must be in [0, 1)");
  if (nesterov && momentum == 0) throw Error("sgd: Nesterov needs momentum");
  weight_decay.check("sgd: weight decay");
  rate_factors.check("sgd: a factor of the learning rate");
}

Sgd::Sgd(FlatParameters parameters, SgdOptions options)
    : Optimizer(std::move(parameters)),
      options_(options),
      ranges_(
          optimizer_ranges(this->parameters().views, options.weight_decay, options.rate_factors)),
      factors_(this->parameters().values.backend(), ranges_.size()) {
  options_.check();
  if (options_.momentum > 0) velocities_ = make_state();
}

SgdFactors sgd_factors(const SgdOptions& options, const OptimizerRange& range,
                       double learning_rate) {
  return sgd_factors(SgdArguments{.learning_rate = learning_rate,
                                  .momentum = options.momentum,
                                  .weight_decay = range.weight_decay});
}

void Sgd::begin_step(double learning_rate) {
  std::vector<SgdFactors> factors;
  for (const OptimizerRange& range : ranges_)
    factors.push_back(sgd_factors(options_, range, rate_of(range, learning_rate)));
  factors_.set(factors);
}

std::vector<SgdRange> sgd_parts(const FlatParameters& parameters,
                                const std::vector<OptimizerRange>& ranges,
                                const SgdFactors* factors, float* velocities_or_null,
                                std::int64_t begin, std::int64_t end) {
  const float* gradients = parameters.gradients.data<const float>();
  float* values = parameters.values.data<float>();
  std::vector<SgdRange> parts;
  for_each_part(
      ranges, begin, end, [&](const OptimizerRange& range, std::int64_t first, std::int64_t count) {
        parts.push_back(
            {.count = count,
             .factors = factors + (&range - ranges.data()),
             .gradients = gradients + first,
             .velocities = velocities_or_null == nullptr ? nullptr : velocities_or_null + first,
             .parameters = values + first});
      });
  return parts;
}

void Sgd::update(std::int64_t begin, std::int64_t end) {
  float* velocities = velocities_.defined() ? velocities_.data<float>() : nullptr;
  parameters().values.backend().optimizer().sgd_step(
      sgd_parts(parameters(), ranges_, factors_.data(), velocities, begin, end), skip(),
      options_.nesterov);
}

std::vector<NamedTensor> Sgd::flat_state() const {
  if (!velocities_.defined()) return {};
  return {{"velocity", velocities_}};
}

std::size_t Sgd::state_bytes() const {
  return velocities_.defined() ? static_cast<std::size_t>(velocities_.size()) * sizeof(float) : 0;
}

}  // namespace dlaunch::nn
