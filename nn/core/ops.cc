#include "nn/core/ops.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/core/autograd.h"
#include "nn/core/checks.h"

namespace dlaunch::nn {
namespace {

class AddFunction : public Function {
 public:
  std::string_view name() const override { return "add"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    return {grad_output, grad_output};
  }
};

class ConvertFunction : public Function {
 public:
  explicit ConvertFunction(DType input) : input_(input) {}
  std::string_view name() const override { return "convert"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& context) override {
    if (!context.needs(0)) return {Tensor()};
    return {convert(std::move(grad_output), input_)};
  }

 private:
  DType input_;
};

class ReluFunction : public Function {
 public:
  explicit ReluFunction(Tensor output) : output_(std::move(output)) {}
  std::string_view name() const override { return "relu"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    const Tensor grad_input = result_like(grad_output);
    output_.backend().relu_backward(output_.size(), output_.read(), grad_output.read(),
                                    grad_input.write());
    return {grad_input};
  }

 private:
  Tensor output_;  // positive where the input was
};

class ReshapeFunction : public Function {
 public:
  explicit ReshapeFunction(const Shape& input) : input_(input) {}
  std::string_view name() const override { return "reshape"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    return {grad_output.view(input_)};
  }

 private:
  Shape input_;
};

class DropoutFunction : public Function {
 public:
  DropoutFunction(double probability, const RandomState& random)
      : probability_(probability), random_(random) {}
  std::string_view name() const override { return "dropout"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    const Tensor grad_input = result_like(grad_output);
    grad_output.backend().dropout(grad_output.size(), probability_, random_, grad_output.read(),
                                  grad_input.write());
    return {grad_input};
  }

 private:
  double probability_;
  RandomState random_;  // the mask is computed again instead of being kept
};

class LinearFunction : public Function {
 public:
  /// Both in the type in which they are multiplied.
  LinearFunction(Tensor input, Tensor weights)
      : input_(std::move(input)), weights_(std::move(weights)) {}
  std::string_view name() const override { return "linear"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& context) override;

 private:
  Tensor input_;
  Tensor weights_;
};

std::vector<Tensor> LinearFunction::backward(Tensor grad_output, const BackwardContext& context) {
  Backend& backend = input_.backend();
  const std::int64_t rows = input_.shape()[0];
  const std::int64_t in = input_.shape()[1];
  const std::int64_t out = weights_.shape()[0];
  const Tensor gradient = convert(grad_output.detach(), input_.dtype());
  std::vector<Tensor> gradients(3);
  if (context.needs(1)) {
    gradients[1] = gradient_sum(context, 1, backend, weights_.shape());
    const ArrayRef sum = gradients[1].write();
    backend.matmul({.transpose_a = true,
                    .m = out,
                    .n = in,
                    .k = rows,
                    .beta = 1,
                    .a = gradient.read(),
                    .b = input_.read(),
                    .c = sum,
                    .d = sum});
  }
  if (context.needs(2)) {
    gradients[2] = gradient_sum(context, 2, backend, {out});
    backend.accumulate_column_sums(rows, out, grad_output.data<const float>(),
                                   gradients[2].data<float>());
  }
  if (context.needs(0)) {
    gradients[0] = Tensor::empty(backend, input_.shape(), input_.dtype());
    backend.matmul({.m = rows,
                    .n = in,
                    .k = out,
                    .a = gradient.read(),
                    .b = weights_.read(),
                    .d = gradients[0].write()});
  }
  return gradients;
}

void check_linear(const Tensor& x, const Tensor& weights, const Tensor& bias) {
  require_activation("linear", x);
  require_rank("linear", "input", x, 2);
  require_f32("linear", "weights", weights);
  require_rank("linear", "weights", weights, 2);
  if (x.shape()[1] != weights.shape()[1]) {
    throw Error("linear: input " + x.shape().to_string() + " does not fit weights " +
                weights.shape().to_string());
  }
  if (bias.defined() && bias.shape() != Shape{weights.shape()[0]}) {
    throw Error("linear: bias " + bias.shape().to_string() + " does not fit weights " +
                weights.shape().to_string());
  }
}

}  // namespace

Tensor add(Tensor a, Tensor b) {
  require_activation("add", a);
  require_same_dtype("add", a, b);
  require_same_shape("add", a, b);
  Tensor y = result_like(a.sole_owner() ? a : b);
  y.backend().add(y.size(), a.read(), b.read(), y.write());
  if (is_recording({a, b})) record(y, {a, b}, std::make_unique<AddFunction>());
  return y;
}

Tensor convert(Tensor x, DType dtype) {
  if (x.dtype() == dtype) return x;
  require_activation("convert", x);
  Tensor y = Tensor::empty(x.backend(), x.shape(), dtype);
  require_activation("convert", y);
  y.backend().convert(y.size(), x.read(), y.write());
  if (is_recording({x})) record(y, {x}, std::make_unique<ConvertFunction>(x.dtype()));
  return y;
}

Tensor relu(Tensor x) {
  require_activation("relu", x);
  Tensor y = result_like(x);
  y.backend().relu(y.size(), x.read(), y.write());
  if (is_recording({x})) record(y, {x}, std::make_unique<ReluFunction>(y.detach()));
  return y;
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  Tensor y = x.view(shape);
  if (is_recording({x})) record(y, {x}, std::make_unique<ReshapeFunction>(x.shape()));
  return y;
}

Shape flattened(const Shape& x) {
  if (x.rank() == 0) throw Error("flatten: a scalar has no batch dimension");
  std::int64_t features = 1;
  for (int i = 1; i < x.rank(); ++i) features *= x[i];
  return {x[0], features};
}

Tensor flatten(const Tensor& x) {
  return reshape(x, flattened(x.shape()));
}

Tensor dropout(Tensor x, double probability, Generator& generator) {
  require_activation("dropout", x);
  if (!(probability >= 0 && probability < 1)) {
    throw Error("dropout: probability " + std::to_string(probability) + " is not in [0, 1)");
  }
  const RandomState random = generator.reserve(static_cast<std::uint64_t>(x.size()));
  Tensor y = result_like(x);
  y.backend().dropout(y.size(), probability, random, x.read(), y.write());
  if (is_recording({x})) record(y, {x}, std::make_unique<DropoutFunction>(probability, random));
  return y;
}

Tensor linear(const Tensor& x, const Tensor& weights, const Tensor& bias) {
  check_linear(x, weights, bias);
  Backend& backend = x.backend();
  const std::int64_t rows = x.shape()[0];
  const std::int64_t out = weights.shape()[0];
  Tensor y = Tensor::empty(backend, {rows, out});
  if (bias.defined()) {
    backend.broadcast_rows(rows, out, bias.data<const float>(), y.data<float>());
  }
  const Tensor factors = convert(weights.detach(), x.dtype());
  const ArrayRef sum = y.write();
  backend.matmul({.transpose_b = true,
                  .m = rows,
                  .n = out,
                  .k = x.shape()[1],
                  .beta = bias.defined() ? 1.0F : 0.0F,
                  .a = x.read(),
                  .b = factors.read(),
                  .c = sum,
                  .d = sum});
  if (is_recording({x, weights, bias})) {
    record(y, {x, weights, bias}, std::make_unique<LinearFunction>(x.detach(), factors));
  }
  return y;
}

}  // namespace dlaunch::nn
