#include "trainers/training/running_statistics.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dlaunch {
namespace {

constexpr const char* kOfRanks = "running_statistics.of_ranks";

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

std::vector<float> values_of(const std::vector<Statistics>& layers) {
  std::vector<float> values;
  for (const Statistics& layer : layers)
    for (const nn::Tensor& tensor : {layer.mean, layer.variance}) {
      const auto some = tensor.host_values<float>();
      values.insert(values.end(), some.begin(), some.end());
    }
  return values;
}

void set_values_of(const std::vector<Statistics>& layers, std::span<const float> values) {
  for (const Statistics& layer : layers)
    for (const nn::Tensor& tensor : {layer.mean, layer.variance}) {
      const auto count = static_cast<std::size_t>(tensor.size());
      tensor.set_values<float>(values.first(count));
      values = values.subspan(count);
    }
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

RankStatistics::RankStatistics(nn::Backend& backend, Communicator& world, const nn::Module& network,
                               bool synchronised)
    : backend_(backend),
      world_(world),
      network_(network),
      separate_(!synchronised && world.size() > 1 && !statistics_of(network).empty()) {}

void RankStatistics::merge() {
  if (!separate_ || !own_.empty()) return;
  own_ = values_of(statistics_of(network_));
  merge_running_statistics(world_, network_);
}

void RankStatistics::restore() {
  if (own_.empty()) return;
  set_values_of(statistics_of(network_), own_);
  own_.clear();
}

void RankStatistics::gather() {
  if (!separate_) return;
  std::vector<float> all(world_.rank() == 0 ? own_.size() * static_cast<std::size_t>(world_.size())
                                            : 0);
  throw_if_error(world_.gather(own_, all, 0).within("checkpoint"));
  if (world_.rank() == 0)
    all_ = nn::Tensor::from(backend_, {world_.size(), static_cast<std::int64_t>(own_.size())},
                            std::span<const float>(all));
}

void RankStatistics::scatter() {
  if (!separate_) return;
  std::array<std::int64_t, 1> ranks{all_.defined() ? all_.shape()[0] : 0};
  throw_if_error(world_.broadcast(ranks, 0).within("resume"));
  if (ranks[0] != world_.size()) return;
  const std::vector<Statistics> layers = statistics_of(network_);
  std::vector<float> own = values_of(layers);
  const std::vector<float> all =
      world_.rank() == 0 ? all_.host_values<float>() : std::vector<float>();
  throw_if_error(world_.scatter(all, own, 0).within("resume"));
  set_values_of(layers, own);
}

void RankStatistics::prepare(const nn::SafetensorsFile& file) {
  const auto found = file.tensors().find(kOfRanks);
  if (found == file.tensors().end()) return;  // synchronised, or of one rank
  const nn::Shape& shape = found->second.shape;
  const auto count = static_cast<std::int64_t>(values_of(statistics_of(network_)).size());
  if (shape.rank() != 2 || shape[0] == 0 || shape[1] != count)
    file.refuse(kOfRanks,
                "shape " + shape.to_string() + ", expected [ranks, " + std::to_string(count) + "]");
  all_ = nn::Tensor::empty(backend_, shape);
}

std::vector<nn::NamedTensor> RankStatistics::tensors() const {
  if (!all_.defined()) return {};
  return {{kOfRanks, all_}};
}

}  // namespace dlaunch
