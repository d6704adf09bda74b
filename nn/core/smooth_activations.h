// GELU, SiLU and CELU as kernels compute them, from values of transcendental functions, which no
// constexpr function computes. Plain functions of floats; usable from device code.
#pragma once

namespace dlaunch::nn {

inline constexpr float kRootHalf = 0.70710678F;

/// Phi(x), the normal distribution's; `erf` is erf(x kRootHalf). gelu(x) = x Phi(x).
constexpr float gelu_phi(float erf) {
  return 0.5F * (1.0F + erf);
}
/// Phi(-a) of a >= 0 from exp(-a a / 2) and a reciprocal, 1 / (kTailShift + a), by a polynomial in
/// the latter: the form of Abramowitz & Stegun 26.2.17, with coefficients for the least relative
/// error. It is 1.1e-6 in float, up to a = 13, where Phi is 1e-38.
inline constexpr float kTailShift = 2.76F;
constexpr float normal_tail(float reciprocal, float exponential) {
  float sum = 58.62656F;
  sum = sum * reciprocal - 79.548935F;
  sum = sum * reciprocal + 28.157963F;
  sum = sum * reciprocal + 1.6981753F;
  sum = sum * reciprocal + 2.9299526F;
  sum = sum * reciprocal + 1.0880972F;
  sum = sum * reciprocal + 0.3991779F;
  return sum * reciprocal * exponential;
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

/// exp(x) - 1 of x <= 0; `exponential` is exp(x), which may be wrong by 2e-7. Near 0, where that
/// says little of the difference, by Taylor's polynomial. The relative error is 2e-6 at most.
constexpr float expm1_below_zero(float x, float exponential) {
  const float near_zero = x * (1.0F + x * (0.5F + x * (0.16666667F + x * 0.041666667F)));
  return x > -0.12F ? near_zero : exponential - 1.0F;
}

}  // namespace dlaunch::nn
