// Batch normalisation written out plainly in double, over rows x channels, channels innermost.
#pragma once

#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "nn/core/module.h"
#include "nn/core/norm_kernels.h"

namespace dlaunch::nn {

struct BatchNormReference {
  std::size_t channels = 0;
  double eps = 1e-5;
  std::vector<double> gamma;  // empty: no affine
  std::vector<double> beta;

  // Results of forward() and backward().
  std::vector<double> mean;
  std::vector<double> variance;  // biased
  std::vector<double> y;
  std::vector<double> dx;
  std::vector<double> dgamma;
  std::vector<double> dbeta;

  void forward(const std::vector<double>& x) {
    const std::size_t rows = x.size() / channels;
    const auto count = static_cast<double>(rows);
    mean.assign(channels, 0.0);
    variance.assign(channels, 0.0);
    y.assign(x.size(), 0.0);
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t r = 0; r < rows; ++r) mean[c] += x[r * channels + c] / count;
      for (std::size_t r = 0; r < rows; ++r) {
        variance[c] += std::pow(x[r * channels + c] - mean[c], 2) / count;
      }
      for (std::size_t r = 0; r < rows; ++r) {
        y[r * channels + c] = xhat(x[r * channels + c], c) * scale(c) + shift(c);
      }
    }
  }

  /// After forward(x).
  void backward(const std::vector<double>& x, const std::vector<double>& dy) {
    const std::size_t rows = x.size() / channels;
    const auto count = static_cast<double>(rows);
    dx.assign(x.size(), 0.0);
    dgamma.assign(channels, 0.0);
    dbeta.assign(channels, 0.0);
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t r = 0; r < rows; ++r) {
        dbeta[c] += dy[r * channels + c];
        dgamma[c] += dy[r * channels + c] * xhat(x[r * channels + c], c);
      }
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t i = r * channels + c;
        dx[i] = scale(c) / std::sqrt(variance[c] + eps) *
                (dy[i] - dbeta[c] / count - xhat(x[i], c) * dgamma[c] / count);
      }
    }
  }

  double xhat(double x, std::size_t c) const {
    return (x - mean[c]) / std::sqrt(variance[c] + eps);
  }
  double scale(std::size_t c) const { return gamma.empty() ? 1.0 : gamma[c]; }
  double shift(std::size_t c) const { return beta.empty() ? 0.0 : beta[c]; }
};

/// Of CELU, exact in float.
inline constexpr float kReferenceAlpha = 0.375F;

/// activation(z), and its derivative there.
struct ActivationReference {
  double value = 0;
  double slope = 0;
};

inline ActivationReference activation_reference(NormActivation activation, double z) {
  const double phi = std::erfc(-z / std::sqrt(2.0)) / 2;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::acos(-1.0));
  const double sigmoid = 1 / (1 + std::exp(-z));
  switch (activation) {
    case NormActivation::kNone:
      return {.value = z, .slope = 1};
    case NormActivation::kRelu:
      return {.value = z > 0 ? z : 0, .slope = z > 0 ? 1.0 : 0.0};
    case NormActivation::kGelu:
      return {.value = z * phi, .slope = phi + z * density};
    case NormActivation::kSilu:
      return {.value = z * sigmoid, .slope = sigmoid + z * sigmoid * (1 - sigmoid)};
    case NormActivation::kCelu:
      return z > 0 ? ActivationReference{.value = z, .slope = 1}
                   : ActivationReference{.value = kReferenceAlpha * std::expm1(z / kReferenceAlpha),
                                         .slope = std::exp(z / kReferenceAlpha)};
  }
  return {};
}

inline std::vector<float> normal_values(std::size_t count, std::mt19937_64& random,
                                        double mean = 0.0, double deviation = 1.0) {
  std::normal_distribution<double> distribution(mean, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(distribution(random));
  return values;
}

inline std::vector<double> in_double(std::span<const float> values) {
  return {values.begin(), values.end()};
}

/// Gives a layer's parameters values, and tells the reference.
inline void give_values(const Module& layer, BatchNormReference& reference,
                        std::mt19937_64& random) {
  for (const NamedParameter& parameter : layer.parameters()) {
    const std::vector<float> values = normal_values(reference.channels, random, 0.5);
    parameter.tensor.set_values<float>(values);
    (parameter.name == "weight" ? reference.gamma : reference.beta) = in_double(values);
  }
}

}  // namespace dlaunch::nn
