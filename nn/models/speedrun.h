// The networks of two speedruns: the fewest seconds to a given accuracy on CIFAR.
//
// Both begin with fixed filters that whiten patches of 2 x 2 pixels, taken with both signs, and go
// on with convolutions that begin as the identity on their first channels.
#pragma once

#include <memory>

#include "nn/models/builder.h"

namespace dlaunch::nn {

/// airbench94_muon (Jordan 2024, https://github.com/KellerJordan/cifar10-airbench): three groups of
/// 64, 256 and 256 channels, each convolution, max-pool, norm, GELU, convolution, norm, GELU; norms
/// have no scale; max-pool of 3, and logits over the number of features.
std::unique_ptr<Module> make_airbench94(const ModelBuilder& builder);

/// The network of the CIFAR-100 speedrun (https://github.com/AIDDA-Institute/CIFAR-100-speedrun,
/// futurebiohackers' and NAVIER-STOKED's entries): three groups of 64, 256 and 768 channels, each
/// convolution, max-pool, norm, SiLU, and then a residual pair of convolutions through fewer
/// channels; maximum plus mean over the pixels. Images of 20 x 20 pixels and more.
std::unique_ptr<Module> make_speedrun100(const ModelBuilder& builder);

}  // namespace dlaunch::nn
