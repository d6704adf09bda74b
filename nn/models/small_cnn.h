// The small convolutional network of nn/models/model.h.
#pragma once

#include <memory>

#include "nn/models/builder.h"

namespace dlaunch::nn {

/// Children: conv1, relu1, conv2, relu2, pool, dropout1, flatten, fc1, bn1 (with ReLU), dropout2,
/// fc2.
std::unique_ptr<Module> make_small_cnn(const ModelBuilder& builder);

}  // namespace dlaunch::nn
