#include "nn/models/resnet.h"

#include <string>

#include "nn/layers/pooling.h"
#include "nn/models/basic_block.h"

namespace dlaunch::nn {
namespace {

void append_stem(Sequential& network, const ModelBuilder& builder, std::int64_t width,
                 ResNetStem stem) {
  const bool large = stem == ResNetStem::kImageNet;
  const std::int64_t kernel = large ? 7 : 3;
  network.append("conv1", builder.conv(builder.options.channels, width, kernel,
                                       {.stride = large ? 2 : 1,
                                        .padding = kernel / 2,
                                        .bias = false,
                                        .initialisation = Initialisation::kKaimingFanOut}));
  network.append("bn1", builder.norm(width, "bn1", {.activation = NormActivation::kRelu}));
  if (large)
    network.append("maxpool", std::make_unique<MaxPool2d>(
                                  Pool2dOptions{.kernel = 3, .stride = 2, .padding = 1}));
}

}  // namespace

std::unique_ptr<Module> make_resnet(const ModelBuilder& builder,
                                    const std::vector<ResNetStage>& stages, ResNetStem stem) {
  auto network = std::make_unique<Sequential>();
  std::int64_t width = stages.front().channels;
  append_stem(*network, builder, width, stem);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const std::string name = "layer" + std::to_string(i + 1);
    auto& stage = network->append(name, std::make_unique<Sequential>());
    for (int block = 0; block < stages[i].blocks; ++block) {
      const std::int64_t stride = i > 0 && block == 0 ? 2 : 1;
      stage.append(std::make_unique<BasicBlock>(builder, width, stages[i].channels, stride,
                                                name + "." + std::to_string(block)));
      width = stages[i].channels;
    }
  }
  network->append("avgpool", std::make_unique<GlobalAvgPool>());
  network->append("fc", builder.linear(width, builder.options.num_classes));
  return network;
}

}  // namespace dlaunch::nn
