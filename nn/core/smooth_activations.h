// GELU and SiLU as kernels of every device compute them, from the transcendental function's value,
// which no constexpr function computes. Plain functions of floats; usable from device code.
#pragma once

namespace dlaunch::nn {

inline constexpr float kRootHalf = 0.70710678F;

/// Phi(x), the normal distribution's; `erf` is erf(x kRootHalf). gelu(x) = x Phi(x).
constexpr float gelu_phi(float erf) {
  return 0.5F * (1.0F + erf);
}
/// The derivative of gelu at x; `exponential` is exp(-x x / 2).
constexpr float gelu_slope(float x, float phi, float exponential) {
  constexpr float kDensityAtZero = 0.39894228F;
  return phi + x * kDensityAtZero * exponential;
}

/// 1 / (1 + exp(-x)); `exponential` is exp(-x). silu(x) = x times that.
constexpr float silu_sigmoid(float exponential) {
  return 1.0F / (1.0F + exponential);
}
constexpr float silu_slope(float x, float sigmoid) {
  return sigmoid * (1.0F + x * (1.0F - sigmoid));
}

}  // namespace dlaunch::nn
