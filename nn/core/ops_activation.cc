#include <memory>
#include <utility>
#include <vector>

#include "nn/core/autograd.h"
#include "nn/core/checks.h"
#include "nn/core/ops.h"

namespace dlaunch::nn {
namespace {

class CeluFunction : public Function {
 public:
  CeluFunction(Tensor input, float alpha) : input_(std::move(input)), alpha_(alpha) {}
  std::string_view name() const override { return "celu"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    const Tensor grad_input = result_like(grad_output);
    input_.backend().celu_backward(input_.size(), alpha_, input_.read(), grad_output.read(),
                                   grad_input.write());
    return {grad_input};
  }

 private:
  Tensor input_;
  float alpha_;
};

class ScaleFunction : public Function {
 public:
  explicit ScaleFunction(float factor) : factor_(factor) {}
  std::string_view name() const override { return "scale"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    const Tensor grad_input = result_like(grad_output);
    grad_input.backend().scale(grad_input.size(), factor_, nullptr, grad_output.data<const float>(),
                               grad_input.data<float>());
    return {grad_input};
  }

 private:
  float factor_;
};

class ActivationFunction : public Function {
 public:
  ActivationFunction(Tensor input, Activation activation)
      : input_(std::move(input)), activation_(activation) {}
  std::string_view name() const override {
    return activation_ == Activation::kGelu ? "gelu" : "silu";
  }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    const Tensor grad_input = result_like(grad_output);
    input_.backend().activate_backward(activation_, input_.size(), input_.read(),
                                       grad_output.read(), grad_input.write());
    return {grad_input};
  }

 private:
  Tensor input_;
  Activation activation_;
};

Tensor activate(Tensor x, Activation activation) {
  require_activation("activation", x);
  const bool recording = is_recording({x});
  const ConstArrayRef from = x.read();
  Tensor y = recording ? Tensor::empty(x.backend(), x.shape(), x.dtype()) : result_like(x);
  y.backend().activate(activation, y.size(), from, y.write());
  if (recording) record(y, {x}, std::make_unique<ActivationFunction>(x.detach(), activation));
  return y;
}

}  // namespace

Tensor gelu(Tensor x) {
  return activate(std::move(x), Activation::kGelu);
}

Tensor silu(Tensor x) {
  return activate(std::move(x), Activation::kSilu);
}

Tensor celu(Tensor x, float alpha) {
  if (!(alpha > 0)) throw Error("celu: alpha must be above 0");
  require_activation("celu", x);
  const bool recording = is_recording({x});
  const ConstArrayRef from = x.read();
  Tensor y = recording ? Tensor::empty(x.backend(), x.shape(), x.dtype()) : result_like(x);
  y.backend().celu(y.size(), alpha, from, y.write());
  if (recording) record(y, {x}, std::make_unique<CeluFunction>(x.detach(), alpha));
  return y;
}

Tensor scale(Tensor x, float factor) {
  const bool recording = is_recording({x});
  const float* from = x.data<const float>();
  Tensor y = recording ? Tensor::empty(x.backend(), x.shape()) : result_like(x);
  y.backend().scale(y.size(), factor, nullptr, from, y.data<float>());
  if (recording) record(y, {x}, std::make_unique<ScaleFunction>(factor));
  return y;
}

}  // namespace dlaunch::nn
