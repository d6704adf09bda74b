// What optimizers do to one parameter, as kernels on any device compute it. Plain functions of
// floats; constexpr, so usable from device code.
#pragma once

#include "nn/core/optimizer_kernels.h"

namespace dlaunch::nn {

constexpr SgdFactors sgd_factors(const SgdArguments& arguments) {
  return {.rate = static_cast<float>(arguments.learning_rate),
          .decay = static_cast<float>(arguments.weight_decay),
          .momentum = static_cast<float>(arguments.momentum)};
}

/// p after a step without momentum.
constexpr float sgd_plain(const SgdFactors& f, float g, float p) {
  return p - f.rate * (g + f.decay * p);
}

/// v after a step; `d` is g + decay p.
constexpr float sgd_velocity(const SgdFactors& f, float d, float v) {
  return f.momentum * v + d;
}

constexpr double kMuonEps = 1e-7;  // of the norm of a direction

/// The direction of a step of Muon; `v` is the velocity after it.
constexpr float muon_direction(const SgdFactors& f, bool nesterov, float g, float v) {
  return nesterov ? g + f.momentum * v : v;
}

/// What Muon multiplies with so that the norm becomes `wanted`; `norm` is that of now.
constexpr float factor_to_norm(double wanted, double norm, double eps) {
  return norm == 0 ? 0.0F : static_cast<float>(wanted / (norm + eps));
}

/// `root` is sqrt(arguments.correction2), which no constexpr function computes.
constexpr AdamFactors adam_factors(const AdamArguments& arguments, double root) {
  const double decay = arguments.weight_decay;
  return {.keep = static_cast<float>(arguments.decoupled_decay ? 1 - arguments.learning_rate * decay
                                                               : 1),
          .decay = static_cast<float>(arguments.decoupled_decay ? 0 : decay),
          .one_minus_beta1 = static_cast<float>(1 - arguments.beta1),
          .beta2 = static_cast<float>(arguments.beta2),
          .one_minus_beta2 = static_cast<float>(1 - arguments.beta2),
          .rate = static_cast<float>(arguments.learning_rate / arguments.correction1),
          .root_scale = static_cast<float>(1 / root),
          .eps = static_cast<float>(arguments.eps)};
}

/// Moves m and s; `d` is g + decay kept, with kept = keep p.
constexpr void adam_moments(const AdamFactors& f, float d, float& m, float& s) {
  m += f.one_minus_beta1 * (d - m);
  s = f.beta2 * s + f.one_minus_beta2 * d * d;
}

/// p after a step; `root` is sqrt(s).
constexpr float adam_parameter(const AdamFactors& f, float kept, float m, float root) {
  return kept - f.rate * m / (f.root_scale * root + f.eps);
}

/// What gradients of this norm are multiplied with so that it is at most max_norm; NaN if the norm
/// is.
constexpr float clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1.0F : static_cast<float>(factor);
}

/// How much of the value comes into an average in a step. Rounded once: 1 - decay in float would be
/// off by 1e-7 / (1 - decay).
constexpr float average_weight(double decay) {
  return static_cast<float>(1 - decay);
}

/// An average after a step; one that equals the value stays as it is, to the last bit. Computed
/// from the nearer of the two, as torch.lerp does: with a weight of 1 it is the value.
constexpr float moved_average(float weight, float average, float value) {
  const float way = value - average;
  return weight < 0.5F ? average + weight * way : value - (1 - weight) * way;
}

}  // namespace dlaunch::nn
