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

/// Throws ConfigError if the network does not take training images of every size.
void check_sizes(const TrainConfig& config, const nn::Module& network,
                 const nn::ModelOptions& options) {
  for (const nn::ResizeStage& stage : config.data.resize) {
    const auto side = static_cast<std::int64_t>(stage.side);
    try {
      if (network.output_shape({1, side, side, options.channels}) ==
          nn::Shape{1, options.num_classes})
        continue;
    } catch (const nn::Error&) {  // NOLINT(bugprone-empty-catch): said below
    }
    throw ConfigError(fmt::format("data.resize_sides: {} does not take images of {} x {}",
                                  config.model, side, side));
  }
}

}  // namespace

DType compute_type_of(const TrainConfig& config, const nn::Backend& backend) {
  if (config.compute_type == ComputeType::kF16) {
    if (backend.computes_in(DType::kF16)) return DType::kF16;
    throw ConfigError(
        "train.compute_type: \"fp16\" is for train.device \"cuda\"; use \"bf16\" or \"auto\" here");
  }
  const bool bf16 = backend.computes_in(DType::kBF16);
  if (config.compute_type == ComputeType::kBF16 && !bf16)
    throw ConfigError(
        "train.compute_type: this device does not multiply in bf16; use \"fp32\" or \"auto\"");
  return config.compute_type == ComputeType::kF32 || !bf16 ? DType::kF32 : DType::kBF16;
}

std::optional<nn::ResidentImages> make_resident_images(const TrainConfig& config,
                                                       nn::Backend& backend,
                                                       const nn::Dataset& dataset,
                                                       const nn::StepPlan& plan) {
  constexpr std::size_t kMostBytes = std::size_t{8} << 30;
  if (backend.host_accessible() || !config.data.on_device ||
      dataset.size() * dataset.image_shape().size() > kMostBytes)
    return std::nullopt;
  const nn::ImageTransform transform(dataset.image_shape(), config.data.normalization,
                                     config.data.augmentation);
  return std::make_optional<nn::ResidentImages>(backend, dataset, transform, config.seed,
                                                plan.samples());
}

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
  auto model = make_model(config.model, options, backend, generator, &world);
  check_sizes(config, *model, options);
  return model;
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

std::vector<nn::NamedTensor> common_state(const nn::Module& model, const RankOptimizer& optimizer,
                                          const std::optional<LossScaler>& loss_scaler) {
  std::vector<nn::NamedTensor> state = nn::state_of(model);
  std::ranges::move(optimizer.common_state(), std::back_inserter(state));
  if (loss_scaler) std::ranges::move(loss_scaler->state(), std::back_inserter(state));
  return state;
}

std::optional<LossScaler> make_loss_scaler(const TrainConfig& config, nn::Backend& backend,
                                           Communicator& world) {
  if (!config.loss_scaling.enabled) return std::nullopt;
  if (backend.host_accessible())
    throw ConfigError(
        "train.loss_scaling: only losses on GPUs are scaled (train.device \"cuda\"); use \"auto\"");
  return LossScaler(backend, world, config.loss_scaling,
                    config.parallel.gradients == GradientExchange::kShard);
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
  const std::size_t step = config.samples_per_step(ranks);
  const std::size_t left_over = dataset.size() % step;
  const bool drop = config.drop_last && dataset.size() > step;
  nn::StepPlan plan(dataset.size() - (drop ? left_over : 0), step, config.accumulation_steps,
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
