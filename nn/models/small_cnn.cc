#include "nn/models/small_cnn.h"

#include "nn/layers/dropout.h"
#include "nn/layers/flatten.h"
#include "nn/layers/pooling.h"
#include "nn/layers/relu.h"

namespace dlaunch::nn {
namespace {

void append_dropout(Sequential& network, const std::string& name, double probability,
                    const ModelBuilder& builder) {
  if (!builder.options.dropout) return;
  network.append(name, std::make_unique<Dropout>(probability, builder.generator));
}

}  // namespace

std::unique_ptr<Module> make_small_cnn(const ModelBuilder& builder) {
  auto network = std::make_unique<Sequential>();
  network->append("conv1", builder.conv(builder.options.channels, 32, 3));
  network->append("relu1", std::make_unique<ReLU>());
  network->append("conv2", builder.conv(32, 32, 3));
  network->append("relu2", std::make_unique<ReLU>());
  network->append("pool", std::make_unique<MaxPool2d>(Pool2dOptions{.kernel = 2}));
  append_dropout(*network, "dropout1", 0.25, builder);
  const Shape image = network->output_shape(builder.input());
  network->append("flatten", std::make_unique<Flatten>());
  network->append("fc1", builder.linear_of_image(image, 128));
  network->append("bn1",
                  builder.norm(128, "bn1", {.affine = false, .activation = NormActivation::kRelu}));
  append_dropout(*network, "dropout2", 0.5, builder);
  network->append("fc2", builder.linear(128, builder.options.num_classes));
  return network;
}

}  // namespace dlaunch::nn
