// What a Trainer is made of, from the configuration. On one rank, without communication.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nn/checkpoint/named_tensors.h"
#include "nn/core/backend.h"
#include "nn/core/flat_parameters.h"
#include "nn/core/random.h"
#include "nn/data/dataset.h"
#include "nn/data/resident_images.h"
#include "nn/data/sampler.h"
#include "nn/optim/ema.h"
#include "runtime/comm/communicator.h"
#include "runtime/parallel/gradient_reducer.h"
#include "trainers/config/config.h"
#include "trainers/training/datasets.h"
#include "trainers/training/loss_scaler.h"
#include "trainers/training/machine.h"
#include "trainers/training/rank_optimizer.h"
#include "trainers/validation/validation.h"

namespace dlaunch {

/// In the metadata of a network's file, of what describe_network() says.
inline constexpr const char* kNetworkKey = "dlaunch.network";

/// What activations are computed in. Throws ConfigError if the configuration asks for more than the
/// hardware has.
DType compute_type_of(const TrainConfig& config, const nn::Backend& backend);
/// As configurations name it: "fp32".
std::string name_of_compute_type(DType type);

/// On a GPU, if the configuration wants it and they take no more than 8 GiB.
std::optional<nn::ResidentImages> make_resident_images(const TrainConfig& config,
                                                       nn::Backend& backend,
                                                       const nn::Dataset& dataset,
                                                       const nn::StepPlan& plan);

/// Throws nn::DataError, also if its images do not go with the training images.
std::unique_ptr<nn::Dataset> open_validation_set(const DataConfig& config,
                                                 const nn::Dataset& train_set);

/// What training images of this shape go through. Throws ConfigError if they are too small for it.
nn::ImageTransform training_transform(const DataConfig& config, const nn::ImageShape& shape);

/// `world` is that of synchronised batch norms; null: none are. Throws ConfigError if the network
/// does not take images of this shape, or of the sizes to which they are resized.
std::unique_ptr<nn::Module> make_network(const TrainConfig& config, const DataShape& data,
                                         DType compute_type, nn::Backend& backend,
                                         nn::Generator& generator, Communicator* world);

/// For the files of a network alone: what has to be known to use it (docs/training.md).
nn::TensorMetadata describe_network(const TrainConfig& config, const nn::Dataset& dataset);

/// What a checkpoint holds that all ranks have.
std::vector<nn::NamedTensor> common_state(const nn::Module& model, const RankOptimizer& optimizer,
                                          const std::optional<LossScaler>& loss_scaler);

/// Throws ConfigError if losses are to be scaled where that cannot be.
void check_loss_scaling(const TrainConfig& config, const nn::Backend& backend);
/// If the configuration wants one. Throws as check_loss_scaling().
std::optional<LossScaler> make_loss_scaler(const TrainConfig& config, nn::Backend& backend,
                                           Communicator& world);

/// Rank 0's, if the configuration wants one.
std::optional<nn::Ema> make_ema(const TrainConfig& config, const nn::Module& model,
                                const Communicator& world);

GradientReducerOptions reducer_options(const ParallelConfig& config,
                                       const nn::FlatParameters& parameters);

/// Throws ConfigError if the machine has not the memory for it, or if a step has too few images for
/// a batch norm of the network.
nn::StepPlan affordable_plan(const TrainConfig& config, const Communicator& world,
                             const nn::Dataset& dataset, const nn::Module& network,
                             const nn::Backend& backend, const Machine& machine);

/// Images of the rank that validates most.
std::size_t largest_part(const nn::Dataset& validation_set, const Communicator& world);

/// What validations work on.
struct ValidationImages {
  nn::Shape image;              // one
  std::size_t in_training = 0;  // of a micro-batch; 0: nothing is trained
  std::size_t at_most = 0;      // of a rank; 0: that is not known here
};

/// As many images at a time as the configuration says, else 250, but fewer of large ones: those
/// that take no more memory than training does, or 128 MiB. Throws ConfigError if the machine has
/// not the memory for it.
ValidationOptions affordable_validation(const TrainConfig& config, const nn::Module& network,
                                        const nn::Backend& backend, const ValidationImages& images,
                                        const Machine& machine);

}  // namespace dlaunch
