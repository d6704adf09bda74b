// Graphs of nn's CUDA backend: what is recorded does nothing yet, and what is repeated gives the
// bits of what runs at once.
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/core/error.h"
#include "nn/core/ops.h"
#include "nn/core/random.h"
#include "nn/cuda/cuda_backend.h"
#include "nn/layers/batch_norm.h"

namespace dlaunch::nn {
namespace {

class RecordedKernels : public ::testing::Test {
 protected:
  std::vector<float> random_values(std::size_t count) {
    std::vector<float> values(count);
    generator_.fill_normal(values, 0, 1);
    return values;
  }
  void put(const Tensor& to, const std::vector<float>& values) {
    backend_->copy_from_host(to.data<float>(), values.data(), values.size() * sizeof(float));
  }
  void copy(const Tensor& to, const Tensor& from) {
    backend_->copy(to.data<float>(), from.data<float>(),
                   static_cast<std::size_t>(from.size()) * sizeof(float));
  }

  std::unique_ptr<CudaBackend> backend_ = make_cuda_backend();
  Generator generator_{std::random_device{}()};
};

TEST_F(RecordedKernels, GiveTheBitsOfThoseThatRunAtOnce) {
  const Tensor x = Tensor::zeros(*backend_, {5, 7});
  const Tensor y = Tensor::zeros(*backend_, {5, 3});
  const Tensor weights = Tensor::from<float>(*backend_, {3, 7}, random_values(21));
  const Tensor bias = Tensor::from<float>(*backend_, {3}, random_values(3));
  const auto work = [&] { copy(y, relu(linear(relu(x), weights, bias))); };
  const auto recording = backend_->record(work);
  EXPECT_EQ(y.host_values<float>(), std::vector<float>(15));
  for (int round = 0; round < 3; ++round) {
    put(x, random_values(35));
    work();
    const auto expected = y.host_values<float>();
    backend_->fill(y.size(), -1, y.data<float>());
    recording->replay(0);
    EXPECT_EQ(y.host_values<float>(), expected) << "round " << round;
  }
}

TEST_F(RecordedKernels, PoolAndNormaliseWithTheBitsOfThoseThatRunAtOnce) {
  BatchNorm layer(*backend_, 16, {.track_running_stats = false, .pool = {{.kernel = 2}}});
  const Shape pooled{3, 3, 2, 16};
  Tensor x = Tensor::zeros(*backend_, {3, 7, 5, 16});
  x.set_requires_grad(true);
  x.set_grad(Tensor::zeros(*backend_, x.shape()));
  const Tensor dy = Tensor::zeros(*backend_, pooled);
  const Tensor y = Tensor::zeros(*backend_, pooled);
  const auto work = [&] {
    backend_->fill(x.size(), 0, x.grad().data<float>());
    const Tensor output = layer.forward(x);
    copy(y, output);
    backward(output, {.gradient = dy});
  };
  const auto recording = backend_->record(work);
  for (int round = 0; round < 3; ++round) {
    put(x, random_values(static_cast<std::size_t>(x.size())));
    put(dy, random_values(static_cast<std::size_t>(dy.size())));
    work();
    const auto output = y.host_values<float>();
    const auto gradient = x.grad().host_values<float>();
    backend_->fill(y.size(), -1, y.data<float>());
    recording->replay(0);
    EXPECT_EQ(y.host_values<float>(), output) << "round " << round;
    EXPECT_EQ(x.grad().host_values<float>(), gradient) << "round " << round;
  }
}

TEST_F(RecordedKernels, DropTheElementsOfTheRandomWordsThatTheyHaveComeTo) {
  constexpr std::uint64_t kBlocks = 9;  // of four words
  const Tensor x = Tensor::from<float>(*backend_, {33}, random_values(33));
  const Tensor y = Tensor::zeros(*backend_, {33});
  const RandomState begin{.seed = 5, .stream = 6, .position = 8};
  const auto drop = [&](const RandomState& from) {
    backend_->dropout(33, 0.4, from, {x.data<float>(), DType::kF32},
                      {y.data<float>(), DType::kF32});
  };
  const auto recording = backend_->record([&] { drop(begin); });
  for (const std::uint64_t round : {0, 1, 2}) {
    drop({.seed = 5, .stream = 6, .position = 8 + 4 * kBlocks * round});
    const auto expected = y.host_values<float>();
    recording->replay(kBlocks * round);
    EXPECT_EQ(y.host_values<float>(), expected) << "round " << round;
  }
}

TEST_F(RecordedKernels, ThatWereRecordedInVainAreReliedOnByNobody) {
  const std::size_t reserved = backend_->memory().reserved;
  const Tensor x =
      convert(Tensor::from<float>(*backend_, {2, 5, 5, 8}, random_values(400)), DType::kBF16);
  const Tensor weights = Tensor::from<float>(*backend_, {8, 3, 3, 8}, random_values(576));
  const auto convolve = [&] { return convert(conv2d(x, weights, Tensor()), DType::kF32); };
  (void)convolve();
  put(weights, random_values(576));
  const auto fail = [&] {
    (void)convolve();  // converts the weights, or would
    throw Error("on purpose");
  };
  EXPECT_THROW((void)backend_->record(fail), Error);
  const auto result = convolve().host_values<float>();
  put(weights, weights.host_values<float>());
  EXPECT_EQ(result, convolve().host_values<float>());
  EXPECT_EQ(backend_->memory().reserved, reserved) << "what the recording took is given back";
}

TEST_F(RecordedKernels, DoNotWaitForTheDevice) {
  const Tensor x = Tensor::zeros(*backend_, {1});
  EXPECT_THROW((void)backend_->record([&] { (void)x.item(); }), Error);
  EXPECT_EQ(x.item(), 0.0F);
}

}  // namespace
}  // namespace dlaunch::nn
