// Networks whose weights come from PyTorch, and go back: torch/resnet.py, torch/small_cnn.py.
// DLAUNCH_TEST_PYTHON names a Python that has torch; by default python3 is asked.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nn/checkpoint/named_tensors.h"
#include "nn/core/autograd.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/models/model.h"
#include "nn/models/resnet.h"
#include "runtime/base/temporary_folder.h"
#include "tests/support/subprocess.h"

namespace dlaunch::nn {
namespace {

using testing::CompletedProcess;

/// The script's images, and the logits that PyTorch has for them.
struct Reference {
  Tensor images;
  std::vector<float> logits;

  Reference(const std::string& path, Backend& backend) {
    const SafetensorsFile file(path);
    const Shape& shape = file.tensors().at("images").shape;  // NCHW
    images = Tensor::zeros(backend, {shape[0], shape[2], shape[3], shape[1]});
    const Tensor values = Tensor::zeros(backend, file.tensors().at("logits").shape);
    load_tensors(file, std::vector<NamedTensor>{{"images", images}, {"logits", values}});
    const auto numbers = values.values<const float>();
    logits.assign(numbers.begin(), numbers.end());
  }

  void expect_of(Module& network) const {
    const NoGradGuard no_grad;
    network.eval();
    const Tensor output = network.forward(images);
    const auto actual = output.values<const float>();
    ASSERT_EQ(actual.size(), logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(actual[i], logits[i], 1e-4) << i;
  }
};

CompletedProcess python(std::vector<std::string> arguments) {
  const char* named = std::getenv("DLAUNCH_TEST_PYTHON");  // NOLINT(concurrency-mt-unsafe)
  arguments.insert(arguments.begin(), {"/usr/bin/env", named == nullptr ? "python3" : named});
  return testing::run_command({.arguments = arguments}, Deadline::after(std::chrono::seconds(150)));
}

class TorchState : public ::testing::Test {
 protected:
  const std::string folder_ = SOURCE_ROOT "/tests/nn/torch";
  const TemporaryFolder temporary_;
  const std::string directory_ = temporary_.path();
  std::unique_ptr<Backend> backend_ = make_cpu_backend();
  Generator generator_{1};
};

TEST_F(TorchState, OfASmallResNetGivesItsLogits) {
  const auto expect = [&](const std::string& name, std::int64_t side, ResNetStem stem) {
    ModelOptions options;
    options.num_classes = 10;
    options.height = options.width = side;
    const auto network =
        make_resnet({options, *backend_, generator_, nullptr},
                    {{.channels = 4, .blocks = 1}, {.channels = 8, .blocks = 1}}, stem);
    load_state_dict(folder_ + "/" + name + ".safetensors", *network);
    Reference(folder_ + "/" + name + "_io.safetensors", *backend_).expect_of(*network);
  };
  expect("tiny_resnet", 8, ResNetStem::kSmallImages);
  expect("tiny_imagenet_resnet", 20, ResNetStem::kImageNet);
}

/// Tensors of small_cnn.py, as it fills them.
struct FilledTensor {
  std::string name;
  Shape shape;  // torch's
  std::vector<float> values;

  FilledTensor(std::string name_, const Shape& shape_, int k)
      : name(std::move(name_)), shape(shape_), values(static_cast<std::size_t>(shape.size())) {
    const double fan_in = static_cast<double>(shape.size()) / static_cast<double>(shape[0]);
    const double scale = name.ends_with("weight") ? 1 / std::sqrt(fan_in) : 1;
    double i = 0;
    for (float& value : values) {
      value = static_cast<float>(scale * std::sin(0.37 * i + 1e-5 * i * i + k));
      if (name.ends_with("running_var")) value += 1.5F;
      ++i;
    }
  }
};

void write(const std::string& path, std::span<const FilledTensor> tensors) {
  std::vector<TensorBytes> all;
  for (const FilledTensor& one : tensors)
    all.push_back({one.name, DType::kF32, one.shape, std::as_bytes(std::span(one.values))});
  write_safetensors(path, all);
}

TEST_F(TorchState, OfASmallCnnGivesItsScores) {
  const std::vector<FilledTensor> tensors{
      {"conv1.weight", {32, 3, 3, 3}, 0},  {"conv1.bias", {32}, 1},
      {"conv2.weight", {32, 32, 3, 3}, 2}, {"conv2.bias", {32}, 3},
      {"fc1.weight", {128, 192}, 4},       {"fc1.bias", {128}, 5},
      {"bn1.running_mean", {128}, 6},      {"bn1.running_var", {128}, 7},
      {"fc2.weight", {10, 128}, 8},        {"fc2.bias", {10}, 9},
      {"images", {2, 3, 8, 10}, 10}};
  const std::string state = directory_ + "/state.safetensors", io = directory_ + "/io.safetensors";
  write(state, std::span(tensors).first(10));
  write(io, std::span(tensors).last(1));
  const Tensor images = Tensor::zeros(*backend_, {2, 8, 10, 3});
  load_tensors(SafetensorsFile(io), std::vector<NamedTensor>{{"images", images}});

  const auto network = make_model("small_cnn", {.num_classes = 10, .height = 8, .width = 10},
                                  *backend_, generator_, nullptr);
  load_state_dict(state, *network);
  const NoGradGuard no_grad;
  network->eval();
  const auto actual = network->forward(images).host_values<float>();
  std::ifstream file(folder_ + "/small_cnn.json");
  const auto expected = nlohmann::json::parse(file).at("scores");
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected.at(i / 10).at(i % 10).get<double>(), 1e-5) << i;

  // And back: the same bytes under the same names.
  const std::string back = directory_ + "/back.safetensors";
  save_state_dict(back, *network);
  const SafetensorsFile before(state), after(back);
  for (const auto& [name, entry] : before.tensors()) EXPECT_EQ(after.read(name), before.read(name));
}

TEST_F(TorchState, OfAResNet18GivesItsLogitsAndTorchTakesItBack) {
  const CompletedProcess has_torch = python({"-c", "import torch"});
  if (has_torch.exit_code != 0) GTEST_SKIP() << "no torch: " << has_torch.error;
  const std::string state = directory_ + "/state.safetensors", io = directory_ + "/io.safetensors";
  const CompletedProcess made =
      python({folder_ + "/resnet.py", "make", "64,128,256,512", "2,2,2,2", "32", state, io});
  ASSERT_EQ(made.exit_code, 0) << made.error;

  ModelOptions options;
  options.num_classes = 10;
  const auto network = make_model("resnet18", options, *backend_, generator_, nullptr);
  load_state_dict(state, *network);
  Reference(io, *backend_).expect_of(*network);

  const std::string back = directory_ + "/back.safetensors";
  save_state_dict(back, *network);
  const CompletedProcess checked = python({folder_ + "/resnet.py", "check", back, io});
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.error;
}

TEST_F(TorchState, OfTorchvisionsResNet18GivesItsLogitsAndComesBackAsItWas) {
  const std::string state = directory_ + "/state.safetensors", io = directory_ + "/io.safetensors";
  const CompletedProcess made = python({folder_ + "/resnet.py", "torchvision", "96", state, io});
  if (made.exit_code != 0) GTEST_SKIP() << "no torchvision: " << made.error;
  ModelOptions options;
  options.num_classes = 10;
  options.height = options.width = 96;
  const auto network = make_model("resnet18_imagenet", options, *backend_, generator_, nullptr);
  load_state_dict(state, *network);
  Reference(io, *backend_).expect_of(*network);

  const std::string back = directory_ + "/back.safetensors";
  save_state_dict(back, *network);
  const SafetensorsFile before(state), after(back);
  for (const auto& [name, entry] : after.tensors()) {
    EXPECT_EQ(entry.shape, before.tensors().at(name).shape) << name;
    EXPECT_EQ(after.read(name), before.read(name)) << name;
  }
}

}  // namespace
}  // namespace dlaunch::nn
