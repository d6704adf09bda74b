#include "nn/models/model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/core/flat_parameters.h"
#include "nn/models/layer_table.h"
#include "tests/nn/test_backend.h"

namespace dlaunch::nn {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class ModelTest : public testing::Test {
 protected:
  std::unique_ptr<Module> make(const std::string& name, const ModelOptions& options = {}) {
    return make_model(name, options, *backend_, generator_, nullptr);
  }
  Tensor images(std::int64_t count, std::int64_t side = 32) {
    const Shape shape{count, side, side, 3};
    std::vector<float> values(static_cast<std::size_t>(shape.size()));
    generator_.fill_normal(values, 0, 1);
    return Tensor::from<float>(*backend_, shape, values);
  }
  static std::set<std::string> names(const Module& model) {
    std::set<std::string> all;
    for (const NamedParameter& parameter : model.parameters()) all.insert(parameter.name);
    for (const NamedBuffer& buffer : model.buffers()) all.insert(buffer.name);
    return all;
  }

  std::unique_ptr<Backend> backend_ = make_test_backend();
  Generator generator_{std::random_device{}()};
  testing::ScopedTrace trace_{__FILE__, __LINE__,
                              "seed " + std::to_string(generator_.state().seed)};
};

struct Published {
  std::string name;
  std::int64_t num_classes;
  std::int64_t parameters;
  std::int64_t multiply_adds;  // of one 32x32 image
};

// So that failures name the model.
void PrintTo(const Published& published, std::ostream* out) {
  *out << published.name;
}

class PublishedSizes : public ModelTest, public testing::WithParamInterface<Published> {};

TEST_P(PublishedSizes, Match) {
  const Published& published = GetParam();
  const auto model = make(published.name, {.num_classes = published.num_classes});
  EXPECT_EQ(model->parameter_count(), published.parameters);
  EXPECT_EQ(model->multiply_adds({1, 32, 32, 3}), published.multiply_adds);
}

// PyTorch's counts for the same networks: CIFAR ResNets with 1x1 shortcuts (0.27 M and 40.8 M
// multiply-adds for ResNet-20 are the published figures), ResNet-18 with the CIFAR stem (11.2 M and
// 0.556 G), the speedruns' networks (175 M for CIFAR-100). Multiply-adds are of convolutions and
// linear layers.
INSTANTIATE_TEST_SUITE_P(Models, PublishedSizes,
                         testing::Values(Published{"resnet20", 10, 272'474, 40'813'184},
                                         Published{"resnet32", 10, 466'906, 69'124'736},
                                         Published{"resnet44", 10, 661'338, 97'436'288},
                                         Published{"resnet56", 10, 855'770, 125'747'840},
                                         Published{"airbench94", 10, 1'971'352, 118'147'360},
                                         Published{"speedrun100", 100, 8'608'024, 174'979'872},
                                         Published{"resnet18", 100, 11'220'132, 555'468'800},
                                         Published{"resnet18_imagenet", 1000, 11'689'512,
                                                   37'523'456},
                                         // 896 + 9,248 + 802,944 + 12,900 parameters.
                                         Published{"small_cnn", 100, 825'988, 8'818'560}));

/// On images of 16x16 pixels, to be quick.
class EveryModel : public ModelTest, public testing::WithParamInterface<std::string> {
 protected:
  static constexpr std::int64_t kSide = 16;
  std::unique_ptr<Module> model_with(std::int64_t num_classes) {
    return make(GetParam(), {.num_classes = num_classes, .height = kSide, .width = kSide});
  }
};

TEST_P(EveryModel, GivesEveryParameterAGradient) {
  const auto model = model_with(7);
  const FlatParameters flat = flatten_parameters(*model);
  const Tensor logits = model->forward(images(4, kSide));
  ASSERT_EQ(logits.shape(), (Shape{4, 7}));
  EXPECT_EQ(model->output_shape({4, kSide, kSide, 3}), logits.shape());
  const std::vector<std::int32_t> labels{0, 6, 3, 3};
  std::size_t ready = 0;
  backward(cross_entropy(logits, labels), {.on_gradient_ready = [&](const Tensor&) { ++ready; }});
  EXPECT_EQ(ready, flat.views.size());
  for (const FlatView& view : flat.views) {
    const auto gradient = view.parameter.grad().host_values<float>();
    EXPECT_TRUE(std::all_of(gradient.begin(), gradient.end(), [](float g) {
      return std::isfinite(g);
    })) << view.name;
    // A bias that batch norm subtracts again has no gradient but for rounding.
    if (view.name == "fc1.bias") continue;
    EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](float g) {
      return std::abs(g) > 1e-6F;
    })) << view.name;
  }
}

TEST_P(EveryModel, TakesAnEmptyBatchBothWays) {
  const auto model = model_with(100);
  const FlatParameters flat = flatten_parameters(*model);
  const Tensor logits = model->forward(images(0, kSide));
  EXPECT_EQ(logits.shape(), (Shape{0, 100}));
  backward(cross_entropy(logits, std::vector<std::int32_t>{}));
  for (const float g : flat.gradients.host_values<float>()) ASSERT_EQ(g, 0.0F);
}

TEST_P(EveryModel, EvaluatesASingleImageLikeOneOfMany) {
  const auto model = model_with(100);
  {
    const NoGradGuard no_grad;
    model->forward(images(8, kSide));  // moves the running statistics
  }
  model->eval();
  const NoGradGuard no_grad;
  const Tensor batch = images(3, kSide);
  const Tensor together = model->forward(batch);
  const Tensor second = Tensor::view_of(batch, kSide * kSide * 3, {1, kSide, kSide, 3});
  const Tensor alone = model->forward(second);
  const auto expected = Tensor::view_of(together, 100, {100}).host_values<float>();
  const float largest = *std::max_element(expected.begin(), expected.end());
  const auto actual = alone.host_values<float>();
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-4F * std::max(largest, 1.0F));
  }
}

TEST_P(EveryModel, ListsItsLayersWithTheirTotals) {
  const auto model = model_with(100);
  std::int64_t parameters = 0;
  std::int64_t multiply_adds = 0;
  for (const LayerRow& row : layer_table(*model, {1, kSide, kSide, 3})) {
    parameters += row.parameters;
    multiply_adds += row.multiply_adds;
  }
  EXPECT_EQ(parameters, model->parameter_count());
  EXPECT_EQ(multiply_adds, model->multiply_adds({1, kSide, kSide, 3}));
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel,
                         testing::Values("small_cnn", "resnet20", "resnet18_imagenet"),
                         [](const auto& model) { return model.param; });

TEST_F(ModelTest, ResNetsHaveTorchvisionsNames) {
  const std::set<std::string> resnet18 = names(*make("resnet18"));
  for (const char* name :
       {"conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var",
        "layer1.0.conv1.weight", "layer1.0.bn1.running_mean", "layer1.1.conv2.weight",
        "layer2.0.downsample.0.weight", "layer2.0.downsample.1.bias", "layer4.1.bn2.running_var",
        "fc.weight", "fc.bias"}) {
    EXPECT_THAT(resnet18, Contains(name));
  }
  // torchvision's resnet18 has 122 entries, of which 20 are num_batches_tracked.
  EXPECT_EQ(resnet18.size(), 102U);
  EXPECT_FALSE(resnet18.contains("layer1.0.downsample.0.weight"));
  EXPECT_EQ(names(*make("resnet18_imagenet")), resnet18);
}

TEST_F(ModelTest, ResNet18ForImageNetHasTorchvisionsStem) {
  const auto model = make("resnet18_imagenet", {.num_classes = 1000, .height = 224, .width = 224});
  const std::vector<LayerRow> rows = layer_table(*model, {1, 224, 224, 3});
  EXPECT_EQ(rows[0].output, (Shape{1, 112, 112, 64}));
  EXPECT_EQ(rows[2].name, "maxpool");
  EXPECT_EQ(rows[2].output, (Shape{1, 56, 56, 64}));
  EXPECT_EQ(rows[rows.size() - 2].input, (Shape{1, 7, 7, 512}));
  EXPECT_EQ(model->multiply_adds({1, 224, 224, 3}), 1'814'073'344);  // torchvision's 1.81 G
}

TEST_F(ModelTest, SmallCnnHasItsLayers) {
  EXPECT_EQ(names(*make("small_cnn")),
            (std::set<std::string>{"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                                   "fc1.weight", "fc1.bias", "bn1.running_mean", "bn1.running_var",
                                   "fc2.weight", "fc2.bias"}));
  const std::vector<LayerRow> rows = layer_table(*make("small_cnn"), {1, 32, 32, 3});
  ASSERT_EQ(rows.size(), 11U);
  EXPECT_EQ(rows[4].output, (Shape{1, 14, 14, 32}));
  EXPECT_EQ(rows[6].output, (Shape{1, 6272}));
  EXPECT_EQ(layer_table(*make("small_cnn", {.dropout = false}), {1, 32, 32, 3}).size(), 9U);
}

TEST_F(ModelTest, HaveThePublishedConstants) {
  const auto layer = [](const Module& model, const std::string& name) -> Module& {
    for (const auto& [child, module] : model.children())
      if (child == name) return *module;
    throw Error("no " + name);
  };
  const auto small = make("small_cnn");
  EXPECT_EQ(layer(*small, "dropout1").kind(), "Dropout(0.25)");
  EXPECT_EQ(layer(*small, "dropout2").kind(), "Dropout(0.5)");

  const auto factor = [&](const Module& model) {
    const Tensor one = Tensor::from<float>(*backend_, {1, 1}, std::vector<float>{1});
    return layer(model, "scale").forward(one).host_values<float>()[0];
  };
  EXPECT_FLOAT_EQ(factor(*make("airbench94")), 1.0F / 256);
  EXPECT_FLOAT_EQ(factor(*make("airbench94", {.height = 64, .width = 64})), 1.0F / 1024);
  EXPECT_FLOAT_EQ(factor(*make("speedrun100")), 1.25F / 9);
  const auto bag = make("resnet_bag_of_tricks");
  EXPECT_FLOAT_EQ(factor(*bag), 0.125F);
  // CELU is above -alpha, and of numbers far below that next to it.
  std::vector<float> values(std::size_t{64} * 8 * 8 * 64);
  generator_.fill_normal(values, 0, 1);
  const auto activated = layer(*bag, "stem_norm")
                             .forward(Tensor::from<float>(*backend_, {64, 8, 8, 64}, values))
                             .host_values<float>();
  EXPECT_NEAR(*std::ranges::min_element(activated), -0.3, 1e-3);
}

TEST_F(ModelTest, LayersBehindAFlattenedImageSayHowManyChannelsItHas) {
  const auto check = [&](const std::string& name, const std::string& layer, std::int64_t features,
                         std::int64_t channels) {
    for (const NamedParameter& parameter : make(name, {.height = 64, .width = 64})->parameters()) {
      const bool is_that = parameter.name == layer;
      EXPECT_EQ(parameter.image_channels, is_that ? channels : 0) << name << " " << parameter.name;
      if (is_that) {
        EXPECT_EQ(parameter.tensor.shape()[1], features);
      }
    }
  };
  check("small_cnn", "fc1.weight", 30 * 30 * 32, 32);
  check("resnet_bag_of_tricks", "fc.weight", 2 * 2 * 512, 512);
  check("airbench94", "head.weight", 2 * 2 * 256, 256);
  check("speedrun100", "", 0, 0);
  check("resnet20", "", 0, 0);
}

TEST_F(ModelTest, OtherImageSizesWork) {
  const auto model = make("small_cnn", {.num_classes = 10, .height = 64, .width = 64});
  EXPECT_EQ(model->forward(images(2, 64)).shape(), (Shape{2, 10}));
  EXPECT_EQ(make("resnet20")->forward(images(2, 20)).shape(), (Shape{2, 100}));
}

TEST_F(ModelTest, EqualGeneratorsGiveEqualWeights) {
  const auto weights = [&] {
    Generator generator(5, 1);
    const auto model = make_model("resnet20", {}, *backend_, generator, nullptr);
    const auto values = model->parameters().back().tensor.host_values<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(weights(), weights());
}

TEST_F(ModelTest, RefusesWhatCannotBeBuilt) {
  EXPECT_THAT([&] { make("resnet19"); },
              testing::ThrowsMessage<Error>(HasSubstr("resnet20, resnet32")));
  EXPECT_THROW(make("resnet20", {.num_classes = 0}), Error);
  EXPECT_THROW(make("small_cnn", {.height = 5, .width = 4}), Error);
  EXPECT_THROW(make("resnet18", {.sync_batch_norm = true}), Error);
}

TEST_F(ModelTest, NamesAllModels) {
  EXPECT_THAT(model_names(), ElementsAre("small_cnn", "resnet20", "resnet32", "resnet44",
                                         "resnet56", "resnet18", "resnet18_imagenet",
                                         "resnet_bag_of_tricks", "airbench94", "speedrun100"));
}

TEST_F(ModelTest, FormatsTheTableInAlignedColumns) {
  const std::string table = format_layer_table(*make("small_cnn"), {1, 32, 32, 3});
  std::istringstream lines(table);
  std::string line;
  std::set<std::size_t> lengths;
  while (std::getline(lines, line)) lengths.insert(line.size());
  EXPECT_EQ(lengths.size(), 1U) << table;
  EXPECT_THAT(table, HasSubstr("[1, 28, 28, 32]"));
  EXPECT_THAT(table, HasSubstr("802,944"));
  EXPECT_THAT(table, HasSubstr("825,988"));
}

}  // namespace
}  // namespace dlaunch::nn
