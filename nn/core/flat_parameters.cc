#include "nn/core/flat_parameters.h"

#include <utility>

namespace dlaunch::nn {
namespace {

constexpr std::int64_t kAlignment = 16;  // elements: one cache line, one AVX-512 register

}  // namespace

void FlatParameters::zero_gradients() {
  gradients.backend().fill(gradients.size(), 0.0F, gradients.data<float>());
}

FlatParameters flatten_parameters(Module& module) {
  const std::vector<NamedParameter> parameters = module.parameters();
  if (parameters.empty()) throw Error("flatten_parameters: the module has no parameters");
  FlatParameters flat;
  std::int64_t end = 0;
  for (const NamedParameter& parameter : parameters) {
    const std::int64_t count = parameter.tensor.size();
    flat.views.push_back({parameter.name, end, count, parameter.kind, parameter.tensor});
    end += (count + kAlignment - 1) / kAlignment * kAlignment;
  }
  Backend& backend = parameters.front().tensor.backend();
  flat.values = Tensor::zeros(backend, {end});
  flat.gradients = Tensor::zeros(backend, {end});
  for (FlatView& view : flat.views) {
    view.parameter.move_into(flat.values, view.offset);
    view.parameter.set_grad(Tensor::view_of(flat.gradients, view.offset, view.parameter.shape()));
  }
  return flat;
}

}  // namespace dlaunch::nn
