#include "nn/models/builder.h"

#include "nn/layers/sync_batch_norm.h"

namespace dlaunch::nn {

std::unique_ptr<Conv2d> ModelBuilder::conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                           Conv2dLayerOptions layer) const {
  layer.compute_type = options.compute_type;
  return std::make_unique<Conv2d>(backend, in, out, kernel, generator, layer);
}

std::unique_ptr<Linear> ModelBuilder::linear(std::int64_t in, std::int64_t out,
                                             const LinearOptions& layer) const {
  return std::make_unique<Linear>(backend, in, out, generator, layer);
}

std::unique_ptr<Linear> ModelBuilder::linear_of_image(const Shape& image, std::int64_t out,
                                                      LinearOptions layer) const {
  layer.image_channels = image[3];
  return linear(flattened(image)[1], out, layer);
}

std::unique_ptr<BatchNorm> ModelBuilder::norm(std::int64_t channels, const std::string& name,
                                              const BatchNormOptions& layer) const {
  if (!options.sync_batch_norm) return std::make_unique<BatchNorm>(backend, channels, layer);
  if (group == nullptr) throw Error("synchronised batch norm needs a communicator");
  return std::make_unique<SyncBatchNorm>(backend, channels, *group, layer, name);
}

}  // namespace dlaunch::nn
