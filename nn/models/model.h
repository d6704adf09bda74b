// The networks that can be asked for by name. Parameters have the names that torch and torchvision
// give them (convolution weights are OHWI, see nn/core/shape.h).
//
//   small_cnn     conv 3x3 3->32, ReLU, conv 3x3 32->32, ReLU, max-pool 2, dropout 0.25, flatten,
//                 linear ->128, batch norm without affine, ReLU, dropout 0.5, linear; 28x28 pixels
//                 are left of 32x32, so 6,272 features are flattened
//   resnet20/32/44/56  the CIFAR networks of He et al. 2015, section 4.2: 16, 32 and 64 channels
//   resnet18      [2, 2, 2, 2] basic blocks of 64 to 512 channels behind a 3x3 stem without
//                 pooling: for small images
//   resnet18_imagenet  the same behind a 7x7 stem of stride 2 and max-pooling: torchvision's
//   resnet_bag_of_tricks  nn/models/bag_of_tricks.h: whitening, ghost batch norm, CELU
//   airbench94, speedrun100  nn/models/speedrun.h: for the fewest seconds on CIFAR-10 and CIFAR-100
//
// The ResNets are in nn/models/resnet.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/core/module.h"
#include "runtime/comm/communicator.h"

namespace dlaunch::nn {

struct ModelOptions {
  std::int64_t num_classes = 100;
  /// Of one image. Error if it is too small for the network.
  std::int64_t height = 32;
  std::int64_t width = 32;
  std::int64_t channels = 3;
  /// Batch norm over the global batch (needs a communicator) instead of each rank's own.
  bool sync_batch_norm = false;
  /// Of activations up to the last pooling: f32, bf16 or f16. Parameters are f32 either way.
  DType compute_type = DType::kF32;
  /// Whether small_cnn has its two dropout layers.
  bool dropout = true;
};

/// In the order above.
std::vector<std::string> model_names();

/// Error for a name that is not one of model_names().
///
/// `generator` gives the initial weights now and dropout masks later, so it must outlive the model.
/// Ranks whose masks are to differ pass generators of different streams, and broadcast the weights.
/// `group` must outlive the model too; it may be null without sync_batch_norm.
std::unique_ptr<Module> make_model(const std::string& name, const ModelOptions& options,
                                   Backend& backend, Generator& generator, Communicator* group);

}  // namespace dlaunch::nn
