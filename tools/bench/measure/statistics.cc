#include "tools/bench/measure/statistics.h"

#include <algorithm>
#include <cmath>

namespace dlaunch::bench {

double quantile(const std::vector<double>& ascending, double fraction) {
  if (ascending.empty()) return 0;
  const double position = fraction * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  const double share = position - static_cast<double>(below);
  return ascending[below] * (1 - share) + ascending[above] * share;
}

Summary summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {.repetitions = values.size(),
          .median = quantile(values, 0.5),
          .p10 = quantile(values, 0.1),
          .p90 = quantile(values, 0.9)};
}

bool median_is_stable(std::vector<double> values, double tolerance) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double half_width = 0.98 * std::sqrt(n);  // 1.96 standard deviations of the median's rank
  if (n < 2 * half_width + 2) return false;
  const auto low = static_cast<std::size_t>(std::floor(n / 2 - half_width));
  const auto high = static_cast<std::size_t>(std::ceil(n / 2 + half_width));
  return values[std::min(high, values.size() - 1)] - values[low] <=
         tolerance * quantile(values, 0.5);
}

}  // namespace dlaunch::bench
