#include <memory>
#include <utility>
#include <vector>

#include "nn/core/autograd.h"
#include "nn/core/ops.h"

namespace dlaunch::nn {
namespace {

class CeluFunction : public Function {
 public:
  CeluFunction(Tensor output, float alpha) : output_(std::move(output)), alpha_(alpha) {}
  std::string_view name() const override { return "celu"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    const Tensor grad_input = result_like(grad_output);
    output_.backend().celu_backward(output_.size(), alpha_, output_.data<const float>(),
                                    grad_output.data<const float>(), grad_input.data<float>());
    return {grad_input};
  }

 private:
  Tensor output_;  // its sign and value tell the slope
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

}  // namespace

Tensor celu(Tensor x, float alpha) {
  if (!(alpha > 0)) throw Error("celu: alpha must be above 0");
  const bool recording = is_recording({x});
  const float* from = x.data<const float>();
  Tensor y = recording ? Tensor::empty(x.backend(), x.shape()) : result_like(x);
  y.backend().celu(y.size(), alpha, from, y.data<float>());
  if (recording) record(y, {x}, std::make_unique<CeluFunction>(y.detach(), alpha));
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
