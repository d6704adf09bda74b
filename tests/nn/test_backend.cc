#include "tests/nn/test_backend.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "nn/cpu/cpu_backend.h"
#include "nn/cuda/cuda_backend.h"

namespace dlaunch::nn {
namespace {

bool wants_cuda() {
  const char* device = std::getenv("DLAUNCH_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda";
}

class DeviceIsThere : public testing::Environment {
 public:
  void SetUp() override {
    const std::string why = wants_cuda() ? why_no_cuda() : "";
    if (!why.empty()) GTEST_SKIP() << "all tests on CUDA are skipped: " << why;
  }
};

const testing::Environment* const kEnvironment =
    testing::AddGlobalTestEnvironment(new DeviceIsThere);

}  // namespace

std::unique_ptr<Backend> make_test_backend() {
  if (wants_cuda()) return make_cuda_backend();
  return make_cpu_backend();
}

}  // namespace dlaunch::nn
