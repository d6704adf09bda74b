// What is reported of a series of durations.
#pragma once

#include <cstddef>
#include <vector>

namespace dlaunch::bench {

struct Summary {
  std::size_t repetitions = 0;
  double median = 0;
  double p10 = 0;
  double p90 = 0;
};

/// The value below which `fraction` of the (ascending) values lie, by linear interpolation.
double quantile(const std::vector<double>& ascending, double fraction);

Summary summarize(std::vector<double> values);

/// Whether the median is known well enough: its 95 % confidence interval (by order statistics,
/// which assumes no distribution) is narrower than `tolerance` times the median.
bool median_is_stable(std::vector<double> values, double tolerance);

}  // namespace dlaunch::bench
