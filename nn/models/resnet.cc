#include "nn/models/resnet.h"

#include <string>

#include "nn/layers/pooling.h"
#include "nn/models/basic_block.h"

namespace dlaunch::nn {

std::unique_ptr<Module> make_resnet(const ModelBuilder& builder,
                                    const std::vector<ResNetStage>& stages) {
  auto network = std::make_unique<Sequential>();
  std::int64_t width = stages.front().channels;
  network->append("conv1", builder.conv(builder.options.channels, width, 3,
                                        {.padding = 1,
                                         .bias = false,
                                         .initialisation = Initialisation::kKaimingFanOut}));
  network->append("bn1", builder.norm(width, "bn1", {.activation = NormActivation::kRelu}));
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
