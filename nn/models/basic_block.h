// BasicBlock: relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), the block of ResNet-18 and the
// CIFAR ResNets.
#pragma once

#include <string>

#include "nn/models/builder.h"

namespace dlaunch::nn {

/// Children as in torchvision: conv1, bn1, conv2, bn2, and downsample (a 1x1 convolution and batch
/// norm) if the stride is not 1 or the number of channels changes.
class BasicBlock : public Module {
 public:
  /// `name` is the block's place in the network.
  BasicBlock(const ModelBuilder& builder, std::int64_t in, std::int64_t out, std::int64_t stride,
             const std::string& name);

  Tensor forward(Tensor input) override;
  std::string kind() const override { return "BasicBlock"; }
  Shape output_shape(const Shape& input) const override;
  std::int64_t multiply_adds(const Shape& input) const override;
  void describe(const std::string& name, const Shape& input,
                std::vector<LayerRow>& rows) const override;

 private:
  Conv2d* conv1_;  // the children
  BatchNorm* bn1_;
  Conv2d* conv2_;
  BatchNorm* bn2_;
  Sequential* downsample_ = nullptr;  // null: the shortcut is the identity
};

}  // namespace dlaunch::nn
