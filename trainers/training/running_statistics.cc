#include "trainers/training/running_statistics.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace dlaunch {
namespace {

/// Of one layer.
struct Statistics {
  nn::Tensor mean;
  nn::Tensor variance;
};

/// A layer's two are neighbours.
std::vector<Statistics> statistics_of(const nn::Module& network) {
  const std::vector<nn::NamedBuffer> buffers = network.buffers();
  std::vector<Statistics> all;
  for (std::size_t i = 1; i < buffers.size(); ++i)
    if (buffers[i - 1].name.ends_with("running_mean") && buffers[i].name.ends_with("running_var"))
      all.push_back({buffers[i - 1].tensor, buffers[i].tensor});
  return all;
}

}  // namespace

void merge_running_statistics(Communicator& world, const nn::Module& network) {
  if (world.size() == 1) return;
  const std::vector<Statistics> layers = statistics_of(network);
  std::vector<double> moments;  // of each channel the first and the second, which add up
  for (const Statistics& layer : layers) {
    const auto means = layer.mean.host_values<float>();
    const auto variances = layer.variance.host_values<float>();
    for (std::size_t c = 0; c < means.size(); ++c) {
      const auto mean = static_cast<double>(means[c]);
      moments.push_back(mean);
      moments.push_back(static_cast<double>(variances[c]) + mean * mean);
    }
  }
  throw_if_error(world.all_reduce(std::span<double>(moments)).within("running statistics"));
  std::size_t next = 0;
  for (const Statistics& layer : layers) {
    std::vector<float> means, variances;
    for (std::int64_t c = 0; c < layer.mean.size(); ++c) {
      const double mean = moments[next++] / world.size();
      means.push_back(static_cast<float>(mean));
      variances.push_back(
          static_cast<float>(std::max(moments[next++] / world.size() - mean * mean, 0.0)));
    }
    layer.mean.set_values<float>(means);
    layer.variance.set_values<float>(variances);
  }
}

}  // namespace dlaunch
