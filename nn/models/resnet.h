// Residual networks of basic blocks (He, Zhang, Ren & Sun, "Deep residual learning for image
// recognition", 2015), with torchvision's parameter names.
//
// Stem: convolution, batch norm, ReLU, for large images max-pooling; then stages of blocks, each
// stage but the first halving the resolution; then the mean over the pixels and a linear layer.
// Where the shape changes, the shortcut is a 1x1 convolution with batch norm (option B of the
// paper; its CIFAR networks used the parameter-free option A, with 0.27 M instead of 0.27 + 0.003 M
// parameters for ResNet-20).
#pragma once

#include <memory>
#include <vector>

#include "nn/models/builder.h"

namespace dlaunch::nn {

struct ResNetStage {
  std::int64_t channels = 0;
  int blocks = 0;
};

enum class ResNetStem {
  kSmallImages,  // 3x3 convolution
  kImageNet,     // 7x7 convolution of stride 2, then 3x3 max-pooling of stride 2: torchvision's
};

/// Children: conv1, bn1 (with ReLU), maxpool (of kImageNet), layer1 ... layerN, avgpool, fc.
std::unique_ptr<Module> make_resnet(const ModelBuilder& builder,
                                    const std::vector<ResNetStage>& stages,
                                    ResNetStem stem = ResNetStem::kSmallImages);

}  // namespace dlaunch::nn
