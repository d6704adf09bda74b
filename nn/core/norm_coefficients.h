// What batch normalisation multiplies and adds, per channel, from finished statistics: the numbers
// in float that kernels use in their loops. The mean is used as a float and a remainder, so that
// nothing is lost where it is large against the deviation. Pure functions, usable from device code.
#pragma once

namespace dlaunch::nn {

/// The mean as a float, and what that leaves out.
struct SplitMean {
  float shift = 0;
  double rest = 0;
};

constexpr SplitMean split(double mean) {
  const auto shift = static_cast<float>(mean);
  return {.shift = shift, .rest = mean - static_cast<double>(shift)};
}

/// y = (x - shift) scale + offset
struct NormaliseCoefficients {
  float shift = 0;
  float scale = 0;
  float offset = 0;
};

constexpr NormaliseCoefficients normalise_coefficients(double mean, double inv_std, double gamma,
                                                       double beta) {
  const SplitMean parts = split(mean);
  const double slope = gamma * inv_std;
  return {.shift = parts.shift,
          .scale = static_cast<float>(slope),
          .offset = static_cast<float>(beta - slope * parts.rest)};
}

/// sum dy xhat from the sums of dy and of dy (x - shift).
constexpr double sum_with_xhat(const SplitMean& mean, double inv_std, double sum,
                               double shifted_sum) {
  return inv_std * (shifted_sum - mean.rest * sum);
}

/// dx = dy scale + (x - shift) slope + offset
struct BackwardCoefficients {
  float shift = 0;
  float scale = 0;
  float slope = 0;
  float offset = 0;
};

/// With S1 = sum dy and S2 = sum dy xhat over the values of the whole batch, of which there are
/// 1 / inverse_count; where the statistics did not depend on x, all three are 0. (Not the count:
/// a division in double is many instructions and branches for a GPU, and this is called for each
/// channel in each thread.)
constexpr BackwardCoefficients backward_coefficients(double mean, double inv_std, double gamma,
                                                     double inverse_count, double s1, double s2) {
  const SplitMean parts = split(mean);
  const double outer = gamma * inv_std;
  const double inner = -outer * inv_std * s2 * inverse_count;
  return {.shift = parts.shift,
          .scale = static_cast<float>(outer),
          .slope = static_cast<float>(inner),
          .offset = static_cast<float>(-outer * s1 * inverse_count - inner * parts.rest)};
}

}  // namespace dlaunch::nn
