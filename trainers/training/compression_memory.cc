#include "trainers/training/compression_memory.h"

#include <array>
#include <cstdint>
#include <string>

namespace dlaunch {
namespace {

constexpr const char* kErrors = "compression.errors";
constexpr const char* kFactors = "compression.factors";
constexpr const char* kRandom = "compression.random";

}  // namespace

void CompressionMemory::gather(const ExchangeMemory& own) {
  if (own.empty()) return;  // as on all ranks
  const auto gradients = static_cast<std::int64_t>(own.errors.size());
  std::span<float> all;
  if (world_.rank() == 0) {
    errors_ = nn::Tensor::empty(backend_, {world_.size(), gradients});
    all = errors_.values<float>();
    factors_ = nn::Tensor::from(backend_, {static_cast<std::int64_t>(own.factors.size())},
                                std::span<const float>(own.factors));
    random_ = nn::Tensor::from<double>(backend_, {1}, std::array{static_cast<double>(own.random)});
  }
  throw_if_error(world_.gather(own.errors, all, 0).within("checkpoint"));
}

ExchangeMemory CompressionMemory::scatter() {
  std::array<std::int64_t, 3> header{};  // gradients, factors, random
  if (errors_.defined())
    header = {errors_.shape()[1], factors_.size(),
              static_cast<std::int64_t>(random_.host_values<double>()[0])};
  throw_if_error(world_.broadcast(header, 0).within("resume"));
  if (header[1] == 0) return {};

  ExchangeMemory own{.errors = std::vector<float>(static_cast<std::size_t>(header[0])),
                     .factors = std::vector<float>(static_cast<std::size_t>(header[1])),
                     .random = static_cast<std::uint32_t>(header[2])};
  // As many as wrote: to each its own. Else their sum to rank 0.
  std::vector<float> all(
      world_.rank() == 0 ? own.errors.size() * static_cast<std::size_t>(world_.size()) : 0);
  if (errors_.defined()) {
    const auto written = errors_.host_values<float>();
    const bool same = errors_.shape()[0] == world_.size();
    for (std::size_t i = 0; i < written.size(); ++i)
      all[same ? i : i % own.errors.size()] += written[i];
    own.factors = factors_.host_values<float>();
  }
  throw_if_error(world_.scatter(all, own.errors, 0).within("resume"));
  throw_if_error(world_.broadcast(own.factors, 0).within("resume"));
  return own;
}

void CompressionMemory::prepare(const nn::SafetensorsFile& file, bool compress) {
  const auto found = file.tensors().find(kErrors);
  if (found == file.tensors().end()) return;  // of a run without compression, or before it began
  if (!compress)
    file.refuse(kErrors,
                "of a run that has still to make them good; use parallel.gradients "
                "\"power_sgd\" as it was");
  const nn::Shape& shape = found->second.shape;
  if (shape.rank() != 2 || shape.size() == 0)
    file.refuse(kErrors, "shape " + shape.to_string() + ", expected [ranks, gradients]");
  errors_ = nn::Tensor::empty(backend_, shape);
  factors_ = nn::Tensor::empty(backend_, {file.entry(kFactors).shape.size()});
  random_ = nn::Tensor::empty(backend_, {1}, DType::kF64);
}

std::vector<nn::NamedTensor> CompressionMemory::tensors() const {
  if (!errors_.defined()) return {};
  return {{kErrors, errors_}, {kFactors, factors_}, {kRandom, random_}};
}

void CompressionMemory::forget() {
  errors_ = {};
  factors_ = {};
  random_ = {};
}

}  // namespace dlaunch
