#include "nn/core/autograd.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/core/ops.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

class AutogradTest : public OpTest {
 protected:
  Tensor leaf(const Shape& shape) {
    Tensor tensor = reference::to_tensor(*backend_, random_array(shape));
    tensor.set_requires_grad(true);
    return tensor;
  }
  static std::vector<float> values(const Tensor& tensor) { return tensor.host_values<float>(); }
};

// y = x W1^T, z = relu(y) W2^T + y W3^T: y is used twice, with different depths behind it.
TEST_F(AutogradTest, SumsTheGradientsOfAValueUsedTwice) {
  reference::check_operation(
      *backend_,
      [](const std::vector<Tensor>& in) {
        const Tensor y = linear(in[0], in[1], Tensor());
        return add(linear(relu(y), in[2], Tensor()), linear(y, in[3], Tensor()));
      },
      [](const std::vector<Array>& in) {
        const Array y = reference::linear(in[0], in[1], nullptr);
        Array positive = y;
        for (double& value : positive.values) value = std::max(value, 0.0);
        Array z = reference::linear(positive, in[2], nullptr);
        const Array other = reference::linear(y, in[3], nullptr);
        for (std::size_t i = 0; i < z.values.size(); ++i) z.values[i] += other.values[i];
        return z;
      },
      {random_array({3, 4}), random_array({5, 4}), random_array({2, 5}), random_array({2, 5})},
      random_);
}

// add() hands one gradient tensor to both of its inputs; neither may see the other's sum.
TEST_F(AutogradTest, GradientsSharedByTwoInputsStayApart) {
  const Tensor a = leaf({2, 3});
  const Tensor b = leaf({2, 3});
  const Tensor sum = add(add(a, b), b);
  const Tensor ones = Tensor::empty(*backend_, {2, 3});
  backend_->fill(6, 1.0F, ones.data<float>());
  backward(sum, {.gradient = ones});
  EXPECT_EQ(values(a.grad()), std::vector<float>(6, 1.0F));
  EXPECT_EQ(values(b.grad()), std::vector<float>(6, 2.0F));
  EXPECT_EQ(values(ones), std::vector<float>(6, 1.0F));
}

// Here both parts of the gradient of `a` are others' too.
TEST_F(AutogradTest, GradientsSharedByTwoSumsStayApart) {
  const Tensor ones = Tensor::empty(*backend_, {2, 3});
  backend_->fill(6, 1.0F, ones.data<float>());
  for (const bool swapped : {false, true}) {
    const auto positive = [&] {
      Tensor tensor = Tensor::empty(*backend_, {2, 3});
      backend_->fill(6, 0.5F, tensor.data<float>());
      tensor.set_requires_grad(true);
      return tensor;
    };
    const Tensor p = positive(), q = positive(), r = positive();
    const Tensor a = relu(p), b = relu(q), c = relu(r);
    const Tensor first = swapped ? add(b, a) : add(a, b);
    const Tensor second = swapped ? add(c, a) : add(a, c);
    backward(swapped ? add(second, first) : add(first, second), {.gradient = ones});
    EXPECT_EQ(values(p.grad()), std::vector<float>(6, 2.0F));
    EXPECT_EQ(values(q.grad()), std::vector<float>(6, 1.0F));
    EXPECT_EQ(values(r.grad()), std::vector<float>(6, 1.0F));
    EXPECT_EQ(values(ones), std::vector<float>(6, 1.0F));
  }
}

TEST_F(AutogradTest, AccumulatesOverSeveralBackwards) {
  const Tensor weights = leaf({3, 4});
  const Array x = random_array({2, 4});
  const std::vector<std::int32_t> labels{2, 0};
  const auto step = [&] {
    backward(cross_entropy(linear(reference::to_tensor(*backend_, x), weights, Tensor()), labels));
  };
  step();
  const std::vector<float> once = values(weights.grad());
  step();
  const std::vector<float> twice = values(weights.grad());
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-6);
}

TEST_F(AutogradTest, AccumulatesIntoTheViewThatWasSet) {
  const Tensor flat = Tensor::zeros(*backend_, {100});
  const Shape weight_shapes[] = {{3, 3, 3, 2}, {4, 27}};
  Tensor convolution = leaf(weight_shapes[0]);
  Tensor matrix = leaf(weight_shapes[1]);
  Tensor bias = leaf({4});
  const auto run = [&] {
    const Tensor x = reference::to_tensor(*backend_, Array({1, 5, 5, 2}));
    reference::set_element(x, 7, 3.0F);
    const Tensor y = relu(flatten(conv2d(x, convolution, Tensor())));
    backward(cross_entropy(linear(y, matrix, bias), std::vector<std::int32_t>{1}));
  };
  run();
  const auto plain = values(convolution.grad());
  const auto plain_bias = values(bias.grad());
  const Tensor view = Tensor::view_of(flat, 16, weight_shapes[0]);
  backend_->fill(view.size(), 10.0F, view.data<float>());
  convolution.set_grad(view);
  bias.set_grad(Tensor::view_of(flat, 90, {4}));
  run();
  const auto all = flat.host_values<float>();
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(all[16 + i], 10 + plain[i], 1e-5);
  for (std::size_t i = 0; i < plain_bias.size(); ++i) EXPECT_EQ(all[90 + i], plain_bias[i]);
  EXPECT_TRUE(std::all_of(all.begin(), all.begin() + 16, [](float v) { return v == 0.0F; }));
  EXPECT_TRUE(convolution.grad().same_as(view));
  EXPECT_THROW(convolution.set_grad(Tensor::zeros(*backend_, {54})), Error);
}

TEST_F(AutogradTest, TellsOfEachGradientOnceWhenItIsFinalLastLayerFirst) {
  const Tensor first = leaf({4, 4});
  const Tensor second = leaf({4, 4});
  const Tensor last = leaf({4, 4});
  const Tensor bias = leaf({4});
  const auto ready_order = [&] {
    // `first` is used a second time near the end, but is complete only at the very end.
    Tensor x = linear(reference::to_tensor(*backend_, Array({2, 4})), first, bias);
    x = relu(linear(x, second, bias));
    x = add(linear(x, last, Tensor()), linear(x, first, Tensor()));
    std::vector<const void*> order;
    backward(cross_entropy(x, std::vector<std::int32_t>{0, 1}),
             {.on_gradient_ready = [&](const Tensor& leaf) {
               EXPECT_TRUE(leaf.grad().defined());
               order.push_back(leaf.id());
             }});
    return order;
  };
  const std::vector<const void*> order = ready_order();
  EXPECT_EQ(order, (std::vector<const void*>{last.id(), second.id(), first.id(), bias.id()}));
  EXPECT_EQ(ready_order(), order);
}

TEST_F(AutogradTest, DoesNotTellOfLeavesThatTheLossDoesNotNeed) {
  const Tensor used = leaf({3, 3});
  const Tensor unused = leaf({3, 3});
  linear(leaf({2, 3}).detach(), unused, Tensor());
  int calls = 0;
  backward(
      cross_entropy(linear(leaf({2, 3}).detach(), used, Tensor()), std::vector<std::int32_t>{0, 1}),
      {.on_gradient_ready = [&](const Tensor& leaf) {
        ++calls;
        EXPECT_TRUE(leaf.same_as(used));
      }});
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(unused.grad().defined());
}

TEST_F(AutogradTest, RecordsNothingUnderANoGradGuard) {
  const Tensor x = leaf({2, 3});
  {
    const NoGradGuard outer;
    const NoGradGuard inner;
    EXPECT_FALSE(relu(x).requires_grad());
  }
  EXPECT_TRUE(relu(x).requires_grad());
  EXPECT_FALSE(relu(x.detach()).requires_grad());
}

TEST_F(AutogradTest, TheGraphAndItsTensorsAreGoneAfterBackward) {
  const Tensor weights = leaf({8, 3, 3, 3});
  const Tensor image = reference::to_tensor(*backend_, random_array({4, 9, 9, 3}));
  const auto run = [&](bool walk) {
    Tensor y = relu(conv2d(image, weights, Tensor()));
    y = max_pool2d(y, {2});
    const Tensor loss = cross_entropy(flatten(y), std::vector<std::int32_t>{0, 1, 2, 3});
    if (walk) backward(loss);
  };
  run(true);  // makes the gradient and the reordered weights
  const std::size_t baseline = backend_->memory().in_use;
  run(true);
  EXPECT_EQ(backend_->memory().in_use, baseline);
  run(false);  // a graph that is never walked is freed with its result
  EXPECT_EQ(backend_->memory().in_use, baseline);
}

class PassOn : public Function {
 public:
  std::string_view name() const override { return "pass on"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    return {std::move(grad_output)};
  }
};

TEST_F(AutogradTest, LongChainsNeedNoStack) {
  const Tensor x = leaf({1});
  const auto chain = [&] {
    Tensor y = x;
    for (int i = 0; i < 200'000; ++i) {
      Tensor next = y.detach();
      record(next, {y}, std::make_unique<PassOn>());
      y = std::move(next);
    }
    return y;
  };
  backward(chain());
  EXPECT_EQ(values(x.grad()), std::vector<float>{1});
  (void)chain();  // is freed with its result
}

TEST_F(AutogradTest, FreesWhatItHasPassedWhileTheLossIsStillHeld) {
  const Tensor weights = leaf({50, 100});
  const std::size_t before = backend_->memory().in_use;
  const Tensor loss = cross_entropy(
      relu(linear(reference::to_tensor(*backend_, random_array({2, 100})), weights, Tensor())),
      std::vector<std::int32_t>{0, 1});
  backward(loss);
  constexpr std::size_t kMostAlignment = 256;  // of the loss and of the gradient
  EXPECT_LE(backend_->memory().in_use,
            before + std::size_t{50} * 100 * sizeof(float) + 2 * kMostAlignment);
  EXPECT_THROW(backward(loss), Error);
}

TEST_F(AutogradTest, RefusesWhatHasNoGraph) {
  EXPECT_THROW(backward(leaf({})), Error);
  EXPECT_THROW(backward(relu(leaf({2}))), Error);  // not one element
  EXPECT_THROW(backward(convert(leaf({1}), DType::kBF16)), Error);
  const Tensor wrong = Tensor::zeros(*backend_, {3});
  EXPECT_THROW(backward(relu(leaf({2})), {.gradient = wrong}), Error);
  Tensor result = relu(leaf({2}));
  EXPECT_THROW(result.set_requires_grad(false), Error);
  EXPECT_THROW(Tensor().shape(), Error);
}

class WrongFunction : public Function {
 public:
  std::string_view name() const override { return "wrong"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    return {grad_output.view({grad_output.size()})};
  }
};

TEST_F(AutogradTest, NamesAFunctionWhoseGradientHasTheWrongShape) {
  const Tensor x = leaf({2, 2});
  Tensor y = x.detach();
  record(y, {x}, std::make_unique<WrongFunction>());
  const Tensor gradient = Tensor::zeros(*backend_, {2, 2});
  try {
    backward(y, {.gradient = gradient});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "wrong backward: gradient [4] f32 for an input [2, 2] f32");
  }
}

}  // namespace
}  // namespace dlaunch::nn
