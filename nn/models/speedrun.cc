#include "nn/models/speedrun.h"

#include <array>
#include <string>
#include <utility>

#include "nn/layers/activations.h"
#include "nn/layers/flatten.h"
#include "nn/layers/pad2d.h"
#include "nn/layers/patch_whitening.h"
#include "nn/layers/pooling.h"
#include "nn/layers/residual.h"

namespace dlaunch::nn {
namespace {

constexpr std::int64_t kStemKernel = 2;
constexpr Pool2dOptions kPool{.kernel = 2};
constexpr BatchNormOptions kAirbenchNorm{
    .eps = 1e-12, .momentum = 0.4, .scale = false, .activation = NormActivation::kGelu};
constexpr BatchNormOptions kSpeedrunNorm{.activation = NormActivation::kSilu};
constexpr float kSpeedrunLogits = 1.25F / 9;

/// A group of the CIFAR-100 network.
struct SpeedrunGroup {
  std::int64_t channels;
  std::int64_t middle;    // channels between the residual pair
  std::int64_t kernel;    // of the first convolution
  std::int64_t kernel_a;  // of the residual pair
  std::int64_t kernel_b;
};
constexpr std::array kSpeedrunGroups{SpeedrunGroup{64, 64, 3, 1, 1},
                                     SpeedrunGroup{256, 192, 3, 3, 1},
                                     SpeedrunGroup{768, 512, 2, 3, 3}};

BatchNormOptions after_pool(BatchNormOptions options) {
  options.pool = kPool;
  return options;
}

/// Returns its number of channels.
std::int64_t append_stem(Sequential& network, const ModelBuilder& builder, StemBias bias,
                         bool centred) {
  const std::int64_t in = builder.options.channels;
  network.append("whiten",
                 std::make_unique<PatchWhitening>(
                     builder.backend, in, builder.generator,
                     PatchWhiteningOptions{.kernel = kStemKernel,
                                           .pad = false,
                                           .negated = true,
                                           .bias = bias,
                                           .centred = centred,
                                           .eps = 5e-4,
                                           .images = 5000,
                                           .compute_type = builder.options.compute_type}));
  return 2 * kStemKernel * kStemKernel * in;
}

/// Without a bias; the image keeps its size, and an even kernel has its further zeros at the bottom
/// and on the right.
void append_conv(Sequential& network, const ModelBuilder& builder, const std::string& name,
                 std::int64_t in, std::int64_t out, std::int64_t kernel) {
  const bool even = kernel % 2 == 0;
  const std::int64_t before = (kernel - 1) / 2;
  if (even)
    network.append(name + "_pad",
                   std::make_unique<Pad2d>(Padding{before, before + 1, before, before + 1}));
  network.append(name, builder.conv(in, out, kernel,
                                    {.padding = even ? 0 : before,
                                     .bias = false,
                                     .initialisation = Initialisation::kDirac}));
}

void append_airbench_group(Sequential& network, const ModelBuilder& builder,
                           const std::string& name, std::int64_t in, std::int64_t out) {
  append_conv(network, builder, name + "_conv1", in, out, 3);
  network.append(name + "_norm1", builder.norm(out, name + "_norm1", after_pool(kAirbenchNorm)));
  append_conv(network, builder, name + "_conv2", out, out, 3);
  network.append(name + "_norm2", builder.norm(out, name + "_norm2", kAirbenchNorm));
}

void append_speedrun_group(Sequential& network, const ModelBuilder& builder,
                           const std::string& name, std::int64_t in, const SpeedrunGroup& group) {
  append_conv(network, builder, name + "_conv", in, group.channels, group.kernel);
  network.append(name + "_norm",
                 builder.norm(group.channels, name + "_norm", after_pool(kSpeedrunNorm)));
  auto pair = std::make_unique<Residual>();
  append_conv(*pair, builder, "conv_a", group.channels, group.middle, group.kernel_a);
  pair->append("norm_a", builder.norm(group.middle, name + ".norm_a", kSpeedrunNorm));
  append_conv(*pair, builder, "conv_b", group.middle, group.channels, group.kernel_b);
  pair->append("norm_b", builder.norm(group.channels, name + ".norm_b", kSpeedrunNorm));
  network.append(name, std::move(pair));
}

}  // namespace

std::unique_ptr<Module> make_airbench94(const ModelBuilder& builder) {
  auto network = std::make_unique<Sequential>();
  std::int64_t channels = append_stem(*network, builder, StemBias::kRandom, false);
  network->append("whiten_gelu", std::make_unique<Gelu>());
  int group = 0;
  for (const std::int64_t width : {64, 256, 256}) {
    append_airbench_group(*network, builder, "group" + std::to_string(++group), channels, width);
    channels = width;
  }
  network->append("pool", std::make_unique<MaxPool2d>(Pool2dOptions{.kernel = 3}));
  const Shape image = network->output_shape(builder.input());
  network->append("flatten", std::make_unique<Flatten>());
  network->append("head", builder.linear_of_image(
                              image, builder.options.num_classes,
                              {.bias = false, .initialisation = Initialisation::kUnitDeviation}));
  network->append("scale", std::make_unique<Scale>(1 / static_cast<float>(flattened(image)[1])));
  return network;
}

std::unique_ptr<Module> make_speedrun100(const ModelBuilder& builder) {
  auto network = std::make_unique<Sequential>();
  std::int64_t channels = append_stem(*network, builder, StemBias::kZeros, true);
  network->append("whiten_silu", std::make_unique<Silu>());
  int number = 0;
  for (const SpeedrunGroup& group : kSpeedrunGroups) {
    append_speedrun_group(*network, builder, "group" + std::to_string(++number), channels, group);
    channels = group.channels;
  }
  network->append("pool", std::make_unique<GlobalMaxPlusMean>());
  network->append("head", builder.linear(channels, builder.options.num_classes, {.bias = false}));
  network->append("scale", std::make_unique<Scale>(kSpeedrunLogits));
  return network;
}

}  // namespace dlaunch::nn
