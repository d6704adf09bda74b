// What the networks are built from: layers with everything that is the same for all of them filled
// in. Used while a network is constructed, not kept.
#pragma once

#include <memory>
#include <string>

#include "nn/layers/batch_norm.h"
#include "nn/layers/conv2d.h"
#include "nn/layers/linear.h"
#include "nn/models/model.h"

namespace dlaunch::nn {

struct ModelBuilder {
  const ModelOptions& options;
  Backend& backend;
  Generator& generator;
  Communicator* group;

  std::unique_ptr<Conv2d> conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                               Conv2dLayerOptions layer = {}) const;
  std::unique_ptr<Linear> linear(std::int64_t in, std::int64_t out,
                                 const LinearOptions& layer = {}) const;
  /// Behind Flatten; `image` is the shape before it.
  std::unique_ptr<Linear> linear_of_image(const Shape& image, std::int64_t out,
                                          LinearOptions layer = {}) const;
  /// Local or synchronised, as the options say; `name` is the layer's place in the network.
  std::unique_ptr<BatchNorm> norm(std::int64_t channels, const std::string& name,
                                  const BatchNormOptions& layer = {}) const;
  /// [1, height, width, channels].
  Shape input() const { return {1, options.height, options.width, options.channels}; }
};

}  // namespace dlaunch::nn
