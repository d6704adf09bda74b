// Residual networks of basic blocks for small images (He, Zhang, Ren & Sun, "Deep residual learning
// for image recognition", 2015), with torchvision's parameter names.
//
// Stem: 3x3 convolution, batch norm, ReLU; then stages of blocks, each stage but the first halving
// the resolution; then the mean over the pixels and a linear layer. Where the shape changes, the
// shortcut is a 1x1 convolution with batch norm (option B of the paper; its CIFAR networks used the
// parameter-free option A, with 0.27 M instead of 0.27 + 0.003 M parameters for ResNet-20).
#pragma once

#include <memory>
#include <vector>

#include "nn/models/builder.h"

namespace dlaunch::nn {

struct ResNetStage {
  std::int64_t channels = 0;
  int blocks = 0;
};

/// Children: conv1, bn1 (with ReLU), layer1 ... layerN, avgpool, fc.
std::unique_ptr<Module> make_resnet(const ModelBuilder& builder,
                                    const std::vector<ResNetStage>& stages);

}  // namespace dlaunch::nn
