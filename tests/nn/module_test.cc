#include "nn/core/module.h"

#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/core/autograd.h"
#include "nn/core/flat_parameters.h"
#include "nn/layers/conv2d.h"
#include "nn/layers/dropout.h"
#include "nn/layers/flatten.h"
#include "nn/layers/linear.h"
#include "nn/layers/pooling.h"
#include "nn/layers/relu.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

// The course's small network in miniature, on images [N, 10, 10, 3].
class ModuleTest : public OpTest {
 protected:
  ModuleTest() {
    auto features = std::make_unique<Sequential>();
    features->append(std::make_unique<Conv2d>(*backend_, 3, 8, 3, generator_));
    features->append(std::make_unique<ReLU>());
    features->append("last", std::make_unique<Conv2d>(*backend_, 8, 16, 3, generator_,
                                                      Conv2dLayerOptions{.bias = false}));
    features->append(std::make_unique<MaxPool2d>(Pool2dOptions{2}));
    network_.append("features", std::move(features));
    network_.append("drop", std::make_unique<Dropout>(0.25, dropout_));
    network_.append("flatten", std::make_unique<Flatten>());
    network_.append("fc", std::make_unique<Linear>(*backend_, 144, 10, generator_));
  }

  float step(const Tensor& images, const FlatParameters& flat) {
    const Tensor loss = cross_entropy(network_.forward(images), labels_);
    backward(loss);
    backend_->axpy(flat.values.size(), -0.01F, flat.gradients.data<const float>(),
                   flat.values.data<float>());
    return loss.item();
  }

  Generator generator_{seed_};
  Generator dropout_{seed_, 1};
  Sequential network_;
  std::vector<std::int32_t> labels_{3, 1, 4, 1, 5};
};

TEST_F(ModuleTest, NamesParametersByTheirPath) {
  std::vector<std::string> names;
  for (const NamedParameter& parameter : network_.parameters()) {
    names.push_back(parameter.name);
    EXPECT_TRUE(parameter.tensor.requires_grad());
    EXPECT_EQ(parameter.kind,
              parameter.name.ends_with("bias") ? ParameterKind::kBias : ParameterKind::kWeight);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"features.0.weight", "features.0.bias",
                                             "features.last.weight", "fc.weight", "fc.bias"}));
  EXPECT_EQ(network_.parameter_count(), 8 * 27 + 8 + 16 * 72 + 1440 + 10);
}

TEST_F(ModuleTest, RefusesNamesThatAreTakenOrNone) {
  const auto append = [this](const char* name) {
    network_.append(name, std::make_unique<Flatten>());
  };
  try {
    append("fc");
    ADD_FAILURE() << "two children of one name";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a module has a \"fc\" already");
  }
  EXPECT_THROW(append(""), Error);
  EXPECT_THROW(append("fc.0"), Error);

  class Twice : public Flatten {
   public:
    Twice(Backend& backend, bool parameter, bool buffer, bool child) {
      if (parameter) add_parameter("a", Tensor::zeros(backend, {1}), ParameterKind::kWeight);
      if (buffer) add_buffer("a", Tensor::zeros(backend, {1}));
      if (child) add_module("a", std::make_unique<Flatten>());
    }
  };
  EXPECT_THROW(Twice(*backend_, true, true, false), Error);
  EXPECT_THROW(Twice(*backend_, true, false, true), Error);
  EXPECT_THROW(Twice(*backend_, false, true, true), Error);
  EXPECT_NO_THROW(Twice(*backend_, false, false, true));
}

/// Remembers what runs.
class RunObserver : public ModuleObserver, public BackwardObserver {
 public:
  explicit RunObserver(const Module& network) : modules_(named_modules(network)) {}

  void forward_begins(const Module& module) override { text += "(" + modules_[index(module)].name; }
  void forward_ended(const Module& module, const Tensor& output) override {
    text += ")";
    EXPECT_EQ(output.shape()[0], 5);
    label_operations(output, static_cast<int>(index(module)));
  }
  void operation_begins(int label, std::string_view name) override {
    text += " " + (label < 0 ? "" : modules_[static_cast<std::size_t>(label)].name + ":") +
            std::string(name);
  }
  void operation_ended(int /*label*/, std::string_view /*name*/,
                       const std::vector<Tensor>& gradients) override {
    EXPECT_FALSE(gradients.empty());
  }

  std::string text;

 private:
  std::size_t index(const Module& module) const {
    for (std::size_t i = 0; i < modules_.size(); ++i)
      if (modules_[i].module == &module) return i;
    throw Error("not a module of this network");
  }
  std::vector<NamedModule> modules_;
};

TEST_F(ModuleTest, RunsBeforeTheEyesOfAnObserver) {
  const Tensor images = Tensor::zeros(*backend_, {5, 10, 10, 3});
  RunObserver observer(network_);
  network_.observe(&observer);
  const Tensor loss = cross_entropy(network_(images), labels_);
  EXPECT_EQ(observer.text,
            "((features(features.0)(features.1)(features.last)(features.3))(drop)(flatten)(fc))");
  observer.text.clear();
  backward(loss, {.observer = &observer});
  EXPECT_EQ(observer.text,
            " cross_entropy fc:linear flatten:reshape drop:dropout features.3:max_pool2d "
            "features.last:conv2d features.1:relu features.0:conv2d");
  observer.text.clear();
  network_.observe(nullptr);
  backward(cross_entropy(network_(images), labels_));
  EXPECT_EQ(observer.text, "");
}

TEST_F(ModuleTest, ListsItsLayers) {
  const auto rows = layer_table(network_, {5, 10, 10, 3});
  ASSERT_EQ(rows.size(), 7U);
  EXPECT_EQ(rows[2].name, "features.last");
  EXPECT_EQ(rows[2].kind, "Conv2d(8, 16, kernel 3)");
  EXPECT_EQ(rows[2].output, (Shape{5, 6, 6, 16}));
  EXPECT_EQ(rows[2].parameters, 16 * 72);
  EXPECT_EQ(rows[2].multiply_adds, 5 * 36 * 16 * 72);
  EXPECT_EQ(rows[4].kind, "Dropout(0.25)");
  EXPECT_EQ(rows[6].output, (Shape{5, 10}));
  EXPECT_EQ(network_.output_shape({5, 10, 10, 3}), (Shape{5, 10}));
  EXPECT_EQ(network_.multiply_adds({5, 10, 10, 3}), 5 * (64 * 8 * 27 + 36 * 16 * 72 + 1440));
  EXPECT_THROW(network_.output_shape({5, 12, 12, 3}), Error);
}

TEST_F(ModuleTest, TrainingModeReachesEveryChild) {
  network_.eval();
  EXPECT_FALSE(network_.children()[1].second->is_training());
  EXPECT_FALSE(network_.children()[0].second->children()[0].second->is_training());
  network_.train();
  EXPECT_TRUE(network_.children()[1].second->is_training());
}

TEST_F(ModuleTest, FlatParametersAreTheModulesOwn) {
  std::vector<float> before;
  for (const NamedParameter& parameter : network_.parameters()) {
    const auto values = parameter.tensor.host_values<float>();
    before.insert(before.end(), values.begin(), values.end());
  }
  FlatParameters flat = flatten_parameters(network_);
  std::vector<float> after;
  std::int64_t end = 0;
  for (const FlatView& view : flat.views) {
    EXPECT_GE(view.offset, end);
    EXPECT_EQ(view.offset % 16, 0);
    end = view.offset + view.count;
    const auto values =
        Tensor::view_of(flat.values, view.offset, {view.count}).host_values<float>();
    after.insert(after.end(), values.begin(), values.end());
    EXPECT_EQ(view.parameter.data<const float>(), flat.values.data<const float>() + view.offset);
  }
  EXPECT_EQ(after, before);
  EXPECT_EQ(flat.views[2].name, "features.last.weight");

  step(reference::to_tensor(*backend_, random_array({5, 10, 10, 3})), flat);
  for (const FlatView& view : flat.views) {
    EXPECT_EQ(view.parameter.grad().data<const float>(),
              flat.gradients.data<const float>() + view.offset);
    double norm = 0;
    for (const float g : view.parameter.grad().host_values<float>()) norm += std::abs(g);
    EXPECT_GT(norm, 0) << view.name;
  }
  flat.zero_gradients();
  for (const float g : flat.gradients.host_values<float>()) EXPECT_EQ(g, 0.0F);
}

TEST_F(ModuleTest, AStepThatRepeatsAllocatesNothing) {
  FlatParameters flat = flatten_parameters(network_);
  const Tensor images = reference::to_tensor(*backend_, random_array({5, 10, 10, 3}));
  step(images, flat);
  const MemoryStats first = backend_->memory();
  for (int i = 0; i < 3; ++i) step(images, flat);
  EXPECT_EQ(backend_->memory().allocations, first.allocations);
  EXPECT_EQ(backend_->memory().reserved, first.reserved);
  EXPECT_EQ(backend_->memory().in_use, first.in_use);
}

TEST_F(ModuleTest, StepsAreTheSameBitsRunAfterRun) {
  FlatParameters flat = flatten_parameters(network_);
  const auto start = flat.values.host_values<float>();
  const Tensor images = reference::to_tensor(*backend_, random_array({5, 10, 10, 3}));
  const auto run = [&] {
    backend_->copy_from_host(flat.values.data<float>(), start.data(), start.size() * sizeof(float));
    dropout_ = Generator(seed_, 1);
    std::vector<float> losses;
    for (int i = 0; i < 4; ++i) {
      flat.zero_gradients();
      losses.push_back(step(images, flat));
    }
    const auto parameters = flat.values.host_values<float>();
    losses.insert(losses.end(), parameters.begin(), parameters.end());
    return losses;
  };
  EXPECT_EQ(run(), run());
}

TEST_F(ModuleTest, AnEmptyBatchRunsForwardAndBackward) {
  FlatParameters flat = flatten_parameters(network_);
  labels_.clear();
  EXPECT_EQ(step(Tensor::zeros(*backend_, {0, 10, 10, 3}), flat), 0.0F);
  for (const float g : flat.gradients.host_values<float>()) EXPECT_EQ(g, 0.0F);
}

TEST_F(ModuleTest, WeightsBeginAsPyTorchsDo) {
  const Conv2d uniform(*backend_, 32, 64, 3, generator_);
  const float bound = 1.0F / std::sqrt(288.0F);
  double squares = 0;
  for (const NamedParameter& parameter : uniform.parameters()) {
    for (const float w : parameter.tensor.host_values<float>()) {
      ASSERT_LE(std::abs(w), bound);
      if (parameter.kind == ParameterKind::kWeight) squares += static_cast<double>(w) * w;
    }
  }
  constexpr int kCount = 64 * 288;
  const double variance = 1.0 / 288 / 3;
  EXPECT_NEAR(squares / kCount, variance, 6 * variance * std::sqrt(0.8 / kCount));

  const Conv2d normal(*backend_, 32, 64, 3, generator_,
                      {.bias = false, .initialisation = Initialisation::kKaimingFanOut});
  squares = 0;
  for (const float w : normal.parameters()[0].tensor.host_values<float>()) {
    squares += static_cast<double>(w) * w;
  }
  const double wanted = 2.0 / (64 * 9);
  EXPECT_NEAR(squares / kCount, wanted, 6 * wanted * std::sqrt(2.0 / kCount));
}

TEST_F(ModuleTest, GradientDescentLearnsTheBatch) {
  FlatParameters flat = flatten_parameters(network_);
  network_.eval();  // no dropout
  const Tensor images = reference::to_tensor(*backend_, random_array({5, 10, 10, 3}));
  const float first = step(images, flat);
  float last = first;
  for (int i = 0; i < 60; ++i) {
    flat.zero_gradients();
    last = step(images, flat);
  }
  EXPECT_LT(last, 0.5F * first);
}

}  // namespace
}  // namespace dlaunch::nn
