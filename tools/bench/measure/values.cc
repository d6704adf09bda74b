#include "tools/bench/measure/values.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace dlaunch::bench {

void fill_floats(float* data, std::size_t count, int rank, std::uint64_t repetition) {
  const std::uint32_t stream = stream_of(rank, repetition);
  for (std::size_t i = 0; i < count; ++i) data[i] = real_value(stream, i);
}

double error_of_float_sums(const float* sums, std::size_t count, std::span<const int> ranks,
                           std::size_t first_element, std::uint64_t repetition) {
  std::vector<std::uint32_t> streams;
  streams.reserve(ranks.size());
  for (const int rank : ranks) streams.push_back(stream_of(rank, repetition));
  double worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (const std::uint32_t stream : streams) {
      sum += static_cast<double>(real_value(stream, first_element + i));
    }
    const double error = std::abs(static_cast<double>(sums[i]) - sum) / sum;
    worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
  }
  return worst;
}

}  // namespace dlaunch::bench
