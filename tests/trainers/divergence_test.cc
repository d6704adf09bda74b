// Where values that are not finite are found.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "nn/core/autograd.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/models/model.h"
#include "tests/support/thread_ranks.h"
#include "trainers/training/divergence.h"

namespace dlaunch {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A ResNet-20 for small images, with its parameters as a trainer has them.
struct SmallResNet {
  explicit SmallResNet(Communicator* world = nullptr) {
    nn::ModelOptions options;
    options.num_classes = 4;
    options.height = options.width = 8;
    options.channels = 3;
    options.sync_batch_norm = world != nullptr;
    model = nn::make_model("resnet20", options, *backend, generator, world);
    parameters = nn::flatten_parameters(*model);
  }

  const nn::FlatView& view(const std::string& name) const {
    for (const nn::FlatView& each : parameters.views)
      if (each.name == name) return each;
    throw std::runtime_error("no parameter " + name);
  }
  void poison(const std::string& name, float value) const {
    view(name).parameter.data<float>()[0] = value;
  }
  nn::Tensor images() const {
    nn::Tensor batch = nn::Tensor::empty(*backend, {2, 8, 8, 3});
    nn::Generator(7).fill_normal(batch.values<float>(), 0, 1);
    return batch;
  }

  std::unique_ptr<nn::Backend> backend = nn::make_cpu_backend();
  nn::Generator generator{1};
  std::unique_ptr<nn::Module> model;
  nn::FlatParameters parameters;
};

TEST(Divergence, IsLocatedInTheLayerAndTheRankItBeganIn) {
  testing::run_threads_as_ranks(3, [](Communicator& world) {
    const SmallResNet network(&world);
    if (world.rank() == 1) network.poison("layer2.1.conv2.weight", kNan);
    // Batch norm has spread it to all ranks: from its layer on nobody has numbers any more.
    EXPECT_EQ(locate_divergence(world, *network.model, 2, [&] { return network.images(); }).where,
              "it begins on rank 1, in layer2.1.conv2.weight as the step before left it: 1 of 9216 "
              "numbers are not finite");
  });
}

TEST(Divergence, IsLocatedInTheImages) {
  testing::run_threads_as_ranks(2, [](Communicator& world) {
    const SmallResNet network(&world);
    int batches = 0;
    const Beginning begin = locate_divergence(world, *network.model, 2, [&] {
      nn::Tensor images = network.images();
      if (++batches == 2 && world.rank() == 0) images.data<float>()[5] = kInfinity;
      return images;
    });
    EXPECT_EQ(begin.where, "it begins on rank 0, in the images: 1 of 384 numbers are not finite");
    EXPECT_TRUE(begin.in_images);
  });
}

TEST(Divergence, IsLocatedWhereSumsOverflow) {
  testing::run_threads_as_ranks(1, [](Communicator& world) {
    const SmallResNet network;
    for (float& value : network.view("layer1.0.conv1.weight").parameter.values<float>())
      value = 3e38F;
    const Beginning begin =
        locate_divergence(world, *network.model, 1, [&] { return network.images(); });
    EXPECT_FALSE(begin.in_images);
    const std::string& where = begin.where;
    EXPECT_EQ(where.find("it begins on rank 0, in the output of layer1.0.conv1, Conv2d(16, 16, "),
              0U)
        << where;
  });
}

TEST(Divergence, IsNotSeenWhereThereIsNone) {
  testing::run_threads_as_ranks(2, [](Communicator& world) {
    const SmallResNet network(&world);
    EXPECT_EQ(locate_divergence(world, *network.model, 1, [&] { return network.images(); }).where,
              "every layer's output is finite when the step is repeated");
  });
}

TEST(Divergence, IsTheLastLayerWhoseGradientIsNotFinite) {
  testing::run_threads_as_ranks(1, [](Communicator& world) {
    const SmallResNet network;
    const FlatSpan all{0, static_cast<std::size_t>(network.parameters.values.size())};
    const auto found = [&] { return gradients_not_finite(world, network.parameters, {&all, 1}); };
    nn::Tensor scores = (*network.model)(network.images());
    nn::Tensor gradient = nn::Tensor::zeros(*network.backend, scores.shape());
    gradient.data<float>()[0] = kNan;
    EXPECT_TRUE(small_gradients_are_finite(network.parameters));
    EXPECT_EQ(found().count, 0U);
    EXPECT_EQ(found().first, "");
    nn::backward(scores, {.gradient = gradient});
    EXPECT_FALSE(small_gradients_are_finite(network.parameters));
    EXPECT_EQ(found().count, network.parameters.views.size());
    EXPECT_EQ(found().first, "fc.bias");
  });
}

TEST(Divergence, IsFoundInTheGradientsOfWhichEachRankKnowsAPart) {
  testing::run_threads_as_ranks(3, [](Communicator& world) {
    const SmallResNet network;
    const auto end = static_cast<std::size_t>(network.parameters.values.size());
    const std::size_t edge = static_cast<std::size_t>(network.view("layer2.0.conv1.weight").offset);
    // Rank 2 knows none; what the others do not know is not looked at.
    std::vector<FlatSpan> known;
    if (world.rank() == 0) known = {{0, 7}, {7, edge + 5}};
    if (world.rank() == 1) known = {{edge + 5, end}};
    float* const gradients = network.parameters.gradients.data<float>();
    const auto found = [&] { return gradients_not_finite(world, network.parameters, known); };
    gradients[world.rank() == 0 ? edge + 5 : edge + 4] = kNan;
    EXPECT_EQ(found().count, 0U);
    gradients[edge + 5] = kInfinity;
    gradients[2] = kNan;
    EXPECT_EQ(found().count, 2U);
    EXPECT_EQ(found().first, "layer2.0.conv1.weight");
  });
}

TEST(Divergence, IsTheFirstParameterThatIsNotFinite) {
  const SmallResNet network;
  EXPECT_EQ(parameters_not_finite(network.parameters).count, 0U);
  network.poison("layer1.0.bn1.weight", kInfinity);
  network.poison("fc.weight", kNan);
  EXPECT_EQ(parameters_not_finite(network.parameters).count, 2U);
  EXPECT_EQ(parameters_not_finite(network.parameters).first, "layer1.0.bn1.weight");
}

TEST(Divergence, MayBeInARunningStatistic) {
  const SmallResNet network;
  const auto first = [&] { return first_not_finite(network.parameters, *network.model); };
  EXPECT_EQ(first(), "");
  for (const nn::NamedBuffer& buffer : network.model->buffers())
    if (buffer.name == "layer2.0.bn1.running_var") buffer.tensor.data<float>()[3] = kInfinity;
  EXPECT_EQ(first(), "layer2.0.bn1.running_var");
  network.poison("fc.bias", kNan);
  EXPECT_EQ(first(), "fc.bias");
}

TEST(Divergence, ComesWithAdviceThatGoesWithTheConfiguration) {
  TrainConfig config;
  EXPECT_EQ(advice_after_divergence(config),
            "lower optimizer.learning_rate, warm up (schedule.warmup_epochs) or clip gradients "
            "(optimizer.clip_norm)");
  config.clip_norm = 1;
  config.compute_type = ComputeType::kF16;
  config.loss_scaling.enabled = true;
  EXPECT_EQ(advice_after_divergence(config),
            "lower optimizer.learning_rate, warm up (schedule.warmup_epochs), lower "
            "optimizer.clip_norm or use train.compute_type \"bf16\", whose numbers are larger");
  config.loss_scaling.enabled = false;
  EXPECT_THAT(advice_after_divergence(config),
              ::testing::HasSubstr("optimizer.clip_norm, scale the loss (train.loss_scaling) or "));
  config.parallel.gradients = GradientExchange::kFloat16;
  EXPECT_THAT(advice_after_divergence(config),
              ::testing::EndsWith(" or use parallel.gradients \"bf16\", whose numbers are larger"));
  EXPECT_EQ(advice_after_divergence(config, true),
            "set data.mean and data.std to those of the images");
}

}  // namespace
}  // namespace dlaunch
