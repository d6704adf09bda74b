#include "trainers/trainer_parts.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "nn/models/model.h"
#include "runtime/base/json_reader.h"
#include "trainers/datasets.h"
#include "trainers/tensor_memory.h"

namespace dlaunch {
namespace {

/// Throws ConfigError if the configuration asks for more than the hardware has.
DType compute_type_of(const TrainConfig& config, const nn::Backend& backend) {
  const bool bf16 = backend.computes_in(DType::kBF16);
  if (config.compute_type == ComputeType::kBF16 && !bf16)
    throw ConfigError(
        "train.compute_type: this device does not multiply in bf16; use \"fp32\" or \"auto\"");
  return config.compute_type == ComputeType::kF32 || !bf16 ? DType::kF32 : DType::kBF16;
}

}  // namespace

std::unique_ptr<nn::Dataset> open_validation_set(const DataConfig& config,
                                                 const nn::Dataset& train_set) {
  auto dataset = open_dataset(config, nn::Split::kTest);
  if (dataset->class_names() != train_set.class_names())
    throw nn::DataError(
        fmt::format("{}: the test images have other classes than the training "
                    "images; make them the same",
                    config.directory));
  if (dataset->image_shape() != train_set.image_shape())
    throw nn::DataError(
        fmt::format("{}: the test images have another size than the training "
                    "images; set data.image_size",
                    config.directory));
  return dataset;
}

std::unique_ptr<nn::Module> build_model(const TrainConfig& config, const nn::Dataset& dataset,
                                        nn::Backend& backend, nn::Generator& generator,
                                        Communicator& world) {
  const nn::ImageShape shape = dataset.image_shape();
  nn::ModelOptions options;
  options.num_classes = static_cast<std::int64_t>(dataset.class_names().size());
  options.height = static_cast<std::int64_t>(shape.height);
  options.width = static_cast<std::int64_t>(shape.width);
  options.channels = static_cast<std::int64_t>(shape.channels);
  options.sync_batch_norm = config.sync_batch_norm;
  options.compute_type = compute_type_of(config, backend);
  return make_model(config.model, options, backend, generator, &world);
}

std::vector<GradientRange> gradient_ranges(const nn::FlatParameters& parameters) {
  std::vector<GradientRange> ranges;
  for (const nn::FlatView& view : parameters.views) {
    const nn::Shape& shape = view.parameter.shape();
    ranges.push_back({.offset = static_cast<std::size_t>(view.offset),
                      .count = static_cast<std::size_t>(view.count),
                      .rows = shape.rank() > 1 ? static_cast<std::size_t>(shape[0]) : 1});
  }
  return ranges;
}

std::vector<nn::NamedTensor> common_state(const nn::Module& model, const RankOptimizer& optimizer) {
  std::vector<nn::NamedTensor> state = nn::state_of(model);
  std::ranges::move(optimizer.common_state(), std::back_inserter(state));
  return state;
}

std::optional<nn::Ema> make_ema(const TrainConfig& config, const nn::Module& model,
                                const Communicator& world) {
  if (!config.ema.enabled() || world.rank() != 0) return std::nullopt;
  return nn::Ema(nn::state_of(model), config.ema.decay);
}

GradientReducerOptions reducer_options(const ParallelConfig& config,
                                       const nn::FlatParameters& parameters) {
  return {.limits = config.buckets,
          .exchange = config.gradients,
          .plain_steps = config.plain_steps,
          .power_sgd_rank = config.power_sgd_rank,
          .parameters = memory_of(parameters.values),
          .order = {}};
}

nn::StepPlan affordable_plan(const TrainConfig& config, const Communicator& world,
                             const nn::Dataset& dataset, const nn::Module& network,
                             const nn::Backend& backend, const Machine& machine) {
  const auto ranks = static_cast<std::size_t>(world.size());
  nn::StepPlan plan(dataset.size(), config.samples_per_step(ranks), config.accumulation_steps,
                    ranks);
  const std::size_t images = plan.step_range(0).size() / (ranks * config.accumulation_steps);
  const nn::ImageShape shape = dataset.image_shape();
  const nn::Shape image{1, static_cast<std::int64_t>(shape.height),
                        static_cast<std::int64_t>(shape.width),
                        static_cast<std::int64_t>(shape.channels)};
  if (backend.host_accessible())  // else the device says what it has not
    refuse_unless_it_fits(least_memory(network, image, compute_type_of(config, backend), images,
                                       config.data.prefetch),
                          images, machine);
  return plan;
}

}  // namespace dlaunch
