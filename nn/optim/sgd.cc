#include "nn/optim/sgd.h"

#include <array>
#include <cmath>
#include <utility>

#include "nn/core/optimizer_kernels.h"

namespace dlaunch::nn {
namespace {

double decay_of(const WeightDecay& decay, ParameterKind kind) {
  switch (kind) {
    case ParameterKind::kWeight:
      return decay.weight;
    case ParameterKind::kBias:
      return decay.bias;
    case ParameterKind::kNorm:
      return decay.norm;
  }
  return decay.weight;
}

void check(const SgdOptions& options) {
  if (!(options.momentum >= 0 && options.momentum < 1)) {
    throw Error("sgd: momentum must be in [0, 1)");
  }
  if (options.nesterov && options.momentum == 0) throw Error("sgd: Nesterov needs momentum");
  const WeightDecay& decay = options.weight_decay;
  if (!(decay.weight >= 0 && decay.bias >= 0 && decay.norm >= 0)) {
    throw Error("sgd: weight decay must not be negative");
  }
}

}  // namespace

Sgd::Sgd(FlatParameters parameters, SgdOptions options)
    : parameters_(std::move(parameters)), options_(options) {
  check(options_);
  if (options_.momentum > 0) {
    velocities_ = Tensor::zeros(parameters_.values.backend(), parameters_.values.shape());
  }
  for (const FlatView& view : parameters_.views) {
    const double decay = decay_of(options_.weight_decay, view.kind);
    if (ranges_.empty() || ranges_.back().weight_decay != decay) {
      ranges_.push_back({.offset = view.offset, .weight_decay = decay});
    }
    // Takes in the padding between neighbours: zeros, and they stay zeros.
    ranges_.back().count = view.offset + view.count - ranges_.back().offset;
  }
}

void Sgd::step(double learning_rate) {
  const float* gradients = parameters_.gradients.data<const float>();
  float* values = parameters_.values.data<float>();
  float* velocities = velocities_.defined() ? velocities_.data<float>() : nullptr;
  for (const Range& range : ranges_) {
    const SgdArguments arguments{.learning_rate = learning_rate,
                                 .momentum = options_.momentum,
                                 .weight_decay = range.weight_decay,
                                 .nesterov = options_.nesterov};
    parameters_.values.backend().optimizer().sgd_step(
        range.count, arguments, gradients + range.offset,
        velocities == nullptr ? nullptr : velocities + range.offset, values + range.offset);
  }
}

std::vector<NamedTensor> Sgd::state() const {
  std::vector<NamedTensor> all;
  if (!velocities_.defined()) return all;
  for (const FlatView& view : parameters_.views)
    all.push_back({"velocity." + view.name,
                   Tensor::view_of(velocities_, view.offset, view.parameter.shape())});
  return all;
}

double clip_gradient_norm(FlatParameters& parameters, double max_norm) {
  Backend& backend = parameters.gradients.backend();
  const std::int64_t count = parameters.gradients.size();
  const float* gradients = parameters.gradients.data<const float>();
  const double norm = std::sqrt(backend.optimizer().sum_of_squares(count, gradients));
  const double factor = max_norm / (norm + 1e-6);
  if (factor < 1) {
    const Tensor one = Tensor::from(backend, {}, std::array{1.0F});
    backend.scale(count, static_cast<float>(factor), one.data<const float>(), gradients,
                  parameters.gradients.data<float>());
  }
  return norm;
}

}  // namespace dlaunch::nn
