#include "trainers/training/trainer_parts.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <nlohmann/json.hpp>

#include "nn/layers/batch_norm.h"
#include "nn/models/model.h"
#include "nn/parallel/tensor_memory.h"
#include "runtime/base/json_reader.h"

namespace dlaunch {
namespace {

/// The images that are trained on, of data whose images have this shape: of every size there is.
std::vector<nn::Shape> trained_images(const TrainConfig& config, const nn::Shape& image) {
  std::vector<nn::Shape> sizes;
  for (const nn::ResizeStage& stage : config.data.resize) {
    const auto side = static_cast<std::int64_t>(stage.side);
    sizes.push_back({image[0], side, side, image[3]});
  }
  const std::vector<nn::ResizeStage>& stages = config.data.resize;
  if (stages.empty() || stages.back().until_epochs < static_cast<double>(config.epochs))
    sizes.push_back(image);
  return sizes;
}

/// The name of a batch norm that sees one value per channel of one image; empty: there is none.
std::string find_single_value(const nn::Module& network, const std::vector<nn::Shape>& images) {
  std::set<std::string> norms;
  for (const nn::NamedModule& module : named_modules(network))
    if (dynamic_cast<const nn::BatchNorm*>(module.module) != nullptr) norms.insert(module.name);
  for (const nn::Shape& image : images)
    for (const nn::LayerRow& row : layer_table(network, image))
      if (norms.contains(row.name) && row.output.size() == row.output[-1]) return row.name;
  return "";
}

/// Whether a batch norm has to do with one image in a step: of a rank, or of all ranks if it is
/// synchronised.
bool has_single_image(const nn::StepPlan& plan, std::size_t step, std::size_t ranks,
                      bool synchronised) {
  for (std::size_t i = 0; i < plan.micro_batches(step); ++i) {
    if (synchronised && plan.whole_micro_batch(step, i).size() == 1) return true;
    for (std::size_t rank = 0; !synchronised && rank < ranks; ++rank)
      if (plan.micro_batch(step, i, rank).size() == 1) return true;
  }
  return false;
}

/// The one that the configuration sets.
std::string batch_size_key(const TrainConfig& config) {
  return config.global_batch_size > 0 ? "train.global_batch_size" : "train.batch_size_per_rank";
}

/// Throws ConfigError if a batch norm would be given a single value per channel: there is nothing
/// to train on in that, and it would end the run at the last step of an epoch.
void refuse_single_values(const TrainConfig& config, const nn::StepPlan& plan, std::size_t ranks,
                          const nn::Module& network, const nn::Shape& image) {
  const std::string layer = find_single_value(network, trained_images(config, image));
  if (layer.empty()) return;
  const std::string why = fmt::format(
      "has a single image{}, of which the batch norm {} sees one value per channel and needs more",
      config.sync_batch_norm ? "" : " on a rank", layer);
  if (has_single_image(plan, 0, ranks, config.sync_batch_norm))
    throw ConfigError(
        fmt::format("{}: a micro-batch {}; use larger ones", batch_size_key(config), why));
  const bool ends_before = config.max_steps > 0 && config.max_steps < plan.steps();
  if (!ends_before && has_single_image(plan, plan.steps() - 1, ranks, config.sync_batch_norm))
    throw ConfigError(
        fmt::format("train.drop_last: the last step of an epoch {}; set it to true, or use another "
                    "number of samples per step",
                    why));
}

/// Throws ConfigError if the network does not take training images of every size.
void check_stages(const TrainConfig& config, const nn::Module& network,
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

nn::Shape largest_trained(const TrainConfig& config, const nn::Shape& image) {
  return std::ranges::max(trained_images(config, image), {}, &nn::Shape::size);
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

std::string name_of_compute_type(DType type) {
  return type == DType::kF32 ? "fp32" : type == DType::kF16 ? "fp16" : "bf16";
}

std::optional<nn::ResidentImages> make_resident_images(const TrainConfig& config,
                                                       nn::Backend& backend,
                                                       const nn::Dataset& dataset,
                                                       const nn::StepPlan& plan) {
  constexpr std::size_t kMostBytes = std::size_t{8} << 30;
  if (backend.host_accessible() || !config.data.on_device ||
      dataset.size() * dataset.image_shape().size() > kMostBytes)
    return std::nullopt;
  return std::make_optional<nn::ResidentImages>(
      backend, dataset, training_transform(config.data, dataset.image_shape()), config.seed,
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

nn::ImageTransform training_transform(const DataConfig& config, const nn::ImageShape& shape) {
  if (config.augmentation.crop_padding >= std::min(shape.height, shape.width))
    throw ConfigError(fmt::format(
        "data.crop_padding: {} is not below the sides of images of {} x {}; allowed: at most {}",
        config.augmentation.crop_padding, shape.height, shape.width,
        std::min(shape.height, shape.width) - 1));
  if (config.augmentation.cutout >= 2 * std::min(shape.height, shape.width))
    throw ConfigError(fmt::format(
        "data.cutout: a square of {} covers images of {} x {} wherever it is; allowed: at most {}",
        config.augmentation.cutout, shape.height, shape.width,
        2 * std::min(shape.height, shape.width) - 1));
  return {shape, config.normalization, config.augmentation};
}

std::unique_ptr<nn::Module> make_network(const TrainConfig& config, const DataShape& data,
                                         DType compute_type, nn::Backend& backend,
                                         nn::Generator& generator, Communicator* world) {
  nn::ModelOptions options;
  options.num_classes = static_cast<std::int64_t>(data.classes);
  options.height = static_cast<std::int64_t>(data.image.height);
  options.width = static_cast<std::int64_t>(data.image.width);
  options.channels = static_cast<std::int64_t>(data.image.channels);
  options.sync_batch_norm = config.sync_batch_norm && world != nullptr;
  options.compute_type = compute_type;
  try {
    auto network = make_model(config.model, options, backend, generator, world);
    (void)network->output_shape(image_batch(1, data.image));
    check_stages(config, *network, options);
    return network;
  } catch (const nn::Error& error) {
    throw ConfigError(fmt::format("model.name: {} cannot be made for images of {} x {}: {}",
                                  config.model, options.height, options.width, error.what()));
  }
}

nn::TensorMetadata describe_network(const TrainConfig& config, const nn::Dataset& dataset) {
  const nn::ImageShape image = dataset.image_shape();
  const nlohmann::ordered_json about{{"model", config.model},
                                     {"image", {image.height, image.width, image.channels}},
                                     {"mean", config.data.normalization.mean},
                                     {"std", config.data.normalization.deviation},
                                     {"classes", dataset.class_names()}};
  // A folder's name need not be UTF-8.
  return {{kNetworkKey, about.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)}};
}

std::vector<nn::NamedTensor> common_state(const nn::Module& model, const RankOptimizer& optimizer,
                                          const std::optional<LossScaler>& loss_scaler) {
  std::vector<nn::NamedTensor> state = nn::state_of(model);
  std::ranges::move(optimizer.common_state(), std::back_inserter(state));
  if (loss_scaler) std::ranges::move(loss_scaler->state(), std::back_inserter(state));
  return state;
}

void check_loss_scaling(const TrainConfig& config, const nn::Backend& backend) {
  if (config.loss_scaling.enabled && backend.host_accessible())
    throw ConfigError(
        "train.loss_scaling: only losses on GPUs are scaled (train.device \"cuda\"); use \"auto\"");
}

std::optional<LossScaler> make_loss_scaler(const TrainConfig& config, nn::Backend& backend,
                                           Communicator& world) {
  check_loss_scaling(config, backend);
  if (!config.loss_scaling.enabled) return std::nullopt;
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
  const std::size_t images = plan.largest_micro_batch();
  const nn::Shape image = image_batch(1, dataset.image_shape());
  if (backend.host_accessible())  // else the device says what it has not
    refuse_unless_it_fits(
        batch_size_key(config),
        least_memory(network, largest_trained(config, image), compute_type_of(config, backend),
                     images, config.data.prefetch),
        images, machine);
  refuse_single_values(config, plan, ranks, network, image);
  return plan;
}

std::size_t largest_part(const nn::Dataset& validation_set, const Communicator& world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  return (validation_set.size() + ranks - 1) / ranks;
}

ValidationOptions affordable_validation(const TrainConfig& config, const nn::Module& network,
                                        const nn::Backend& backend, const ValidationImages& images,
                                        const Machine& machine) {
  constexpr double kMost = 250;
  constexpr double kLittle = 128 << 20;  // bytes
  const DType type = compute_type_of(config, backend);
  const double each = least_evaluation_memory(network, images.image, type);
  std::size_t batch = config.validation_batch_size;
  if (batch == 0) {
    const double training =
        least_memory(network, largest_trained(config, images.image), type, images.in_training, 0)
            .activations;
    batch = static_cast<std::size_t>(std::clamp(std::max(training, kLittle) / each, 1.0, kMost));
  }
  const std::size_t together = std::min(batch, images.at_most);
  // What a device has not it says itself.
  const double evaluated = backend.host_accessible() ? static_cast<double>(together) * each : 0;
  const double kept =
      static_cast<double>(images.at_most) * static_cast<double>(images.image.size());
  refuse_unless_validation_fits({.share = images.at_most,
                                 .share_bytes = kept,
                                 .together = together,
                                 .together_bytes = evaluated},
                                machine);
  return {batch, config.validation_views};
}

}  // namespace dlaunch
