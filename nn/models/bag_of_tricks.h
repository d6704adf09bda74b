// The ResNet of cifar10-fast (Page 2018, "How to train your ResNet", "Bag of tricks"): a whitening
// first layer, ghost batch norm, CELU, and two residual blocks of plain convolutions.
#pragma once

#include <memory>

#include "nn/models/builder.h"

namespace dlaunch::nn {

/// Children: whitening, and then as the table of layers says. Logits are scaled by 1/8.
std::unique_ptr<Module> make_resnet_bag_of_tricks(const ModelBuilder& builder);

}  // namespace dlaunch::nn
