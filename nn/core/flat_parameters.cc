#include "nn/core/flat_parameters.h"

#include <exception>
#include <memory>
#include <utility>

#include <spdlog/spdlog.h>

#include "runtime/comm/communicator.h"

namespace dlaunch::nn {
namespace {

constexpr std::int64_t kAlignment = 16;  // elements: one cache line, one AVX-512 register

/// f32 [count], zeros.
Tensor make_flat(Backend& backend, std::int64_t count, Communicator* world) {
  if (world == nullptr || !backend.host_accessible()) return Tensor::zeros(backend, {count});
  auto memory = world->allocate(static_cast<std::size_t>(count) * sizeof(float));
  if (!memory.ok()) return Tensor::zeros(backend, {count});  // no room: collectives make copies
  auto owner = std::make_shared<SharedMemory>(*std::move(memory));
  void* const data = owner->bytes().data();
  Tensor flat = Tensor::over(backend, {count}, DType::kF32, data, std::move(owner));
  backend.fill(count, 0.0F, flat.data<float>());
  return flat;
}

}  // namespace

void FlatParameters::zero_gradients() {
  gradients.backend().fill(gradients.size(), 0.0F, gradients.data<float>());
}

FlatParameters flatten_parameters(Module& module, Communicator* world) {
  const std::vector<NamedParameter> parameters = module.parameters();
  if (parameters.empty()) throw Error("flatten_parameters: the module has no parameters");
  FlatParameters flat;
  std::int64_t end = 0;
  for (const NamedParameter& parameter : parameters) {
    const std::int64_t count = parameter.tensor.size();
    flat.views.push_back(
        {parameter.name, end, count, parameter.kind, parameter.tensor, parameter.image_channels});
    end += (count + kAlignment - 1) / kAlignment * kAlignment;
  }
  Backend& backend = parameters.front().tensor.backend();
  const std::size_t before = backend.memory().in_use;
  flat.values = make_flat(backend, end, world);
  flat.gradients = make_flat(backend, end, world);
  flat.backend_bytes = backend.memory().in_use - before;
  for (FlatView& view : flat.views) {
    view.parameter.move_into(flat.values, view.offset);
    view.parameter.set_grad(Tensor::view_of(flat.gradients, view.offset, view.parameter.shape()));
  }
  return flat;
}

bool is_in_place(const FlatParameters& flat, const FlatView& view) {
  return view.parameter.data<const float>() == flat.values.data<const float>() + view.offset;
}

void unflatten_parameters(const FlatParameters& flat) noexcept {
  try {
    for (const FlatView& view : flat.views) {
      if (!is_in_place(flat, view)) continue;  // it has moved on
      Tensor parameter = view.parameter;       // a handle
      parameter.set_grad({});
      parameter.move_into(Tensor::empty(parameter.backend(), parameter.shape()), 0);
    }
  } catch (const std::exception& error) {
    spdlog::warn("parameters of a network stay in one array: {}", error.what());
  }
}

}  // namespace dlaunch::nn
