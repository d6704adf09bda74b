// Networks whose weights come from PyTorch, and go back: torch/resnet.py. DLAUNCH_TEST_PYTHON names
// a Python that has torch; by default python3 is asked.
#include <cstdlib>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

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
  ModelOptions options;
  options.num_classes = 10;
  options.height = options.width = 8;
  const auto network = make_resnet({options, *backend_, generator_, nullptr},
                                   {{.channels = 4, .blocks = 1}, {.channels = 8, .blocks = 1}});
  load_state_dict(folder_ + "/tiny_resnet.safetensors", *network);
  Reference(folder_ + "/tiny_resnet_io.safetensors", *backend_).expect_of(*network);
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

}  // namespace
}  // namespace dlaunch::nn
