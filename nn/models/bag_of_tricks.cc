#include "nn/models/bag_of_tricks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "nn/layers/activations.h"
#include "nn/layers/batch_norm.h"
#include "nn/layers/flatten.h"
#include "nn/layers/patch_whitening.h"
#include "nn/layers/pooling.h"
#include "nn/layers/residual.h"

namespace dlaunch::nn {
namespace {

constexpr float kCeluAlpha = 0.3F;
constexpr float kLogitFactor = 0.125F;
constexpr std::int64_t kGhostParts = 16;  // of the batch of all ranks

/// Convolution, then (after max-pooling) ghost batch norm and CELU in the same passes.
void append_block(Sequential& network, const ModelBuilder& builder, const std::string& name,
                  std::int64_t in, std::int64_t out, std::int64_t kernel, bool pool) {
  const std::int64_t ranks = builder.group == nullptr ? 1 : builder.group->size();
  network.append(name + "_conv",
                 builder.conv(in, out, kernel, {.padding = kernel / 2, .bias = false}));
  BatchNormOptions norm{.scale = false,
                        .bias_kind = ParameterKind::kBias,
                        .parts = std::max<std::int64_t>(1, kGhostParts / ranks),
                        .activation = NormActivation::kCelu,
                        .celu_alpha = kCeluAlpha};
  if (pool) norm.pool = Pool2dOptions{.kernel = 2};
  network.append(name + "_norm", std::make_unique<BatchNorm>(builder.backend, out, norm));
}

void append_residual(Sequential& network, const ModelBuilder& builder, const std::string& name,
                     std::int64_t channels) {
  auto block = std::make_unique<Residual>();
  append_block(*block, builder, "a", channels, channels, 3, false);
  append_block(*block, builder, "b", channels, channels, 3, false);
  network.append(name, std::move(block));
}

}  // namespace

std::unique_ptr<Module> make_resnet_bag_of_tricks(const ModelBuilder& builder) {
  auto network = std::make_unique<Sequential>();
  const std::int64_t patch = std::int64_t{3} * 3 * builder.options.channels;
  network->append("whitening",
                  std::make_unique<PatchWhitening>(
                      builder.backend, builder.options.channels, builder.generator,
                      PatchWhiteningOptions{.compute_type = builder.options.compute_type}));
  append_block(*network, builder, "stem", patch, 64, 1, false);
  append_block(*network, builder, "layer1", 64, 128, 3, true);
  append_residual(*network, builder, "residual1", 128);
  append_block(*network, builder, "layer2", 128, 256, 3, true);
  append_block(*network, builder, "layer3", 256, 512, 3, true);
  append_residual(*network, builder, "residual2", 512);
  network->append("pool", std::make_unique<MaxPool2d>(Pool2dOptions{.kernel = 4}));
  const Shape image = network->output_shape(builder.input());
  network->append("flatten", std::make_unique<Flatten>());
  network->append("fc",
                  builder.linear_of_image(image, builder.options.num_classes, {.bias = false}));
  network->append("scale", std::make_unique<Scale>(kLogitFactor));
  return network;
}

}  // namespace dlaunch::nn
