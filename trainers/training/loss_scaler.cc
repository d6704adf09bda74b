#include "trainers/training/loss_scaler.h"

#include <array>
#include <bit>

#include "nn/core/optimizer_kernels.h"
#include "nn/parallel/tensor_memory.h"

namespace dlaunch {
namespace {

// They lie in tensors of floats.
using StateFloats = std::array<float, 3>;
using StepFloats = std::array<float, 2>;
static_assert(sizeof(nn::LossScaleState) == sizeof(StateFloats));
static_assert(sizeof(nn::LossScaleStep) == sizeof(StepFloats));

}  // namespace

LossScaler::LossScaler(nn::Backend& backend, Communicator& world, const LossScaling& options,
                       bool sharded)
    : backend_(backend),
      world_(world),
      rule_(options.fixed
                ? nn::LossScaleRule::fixed()
                : nn::LossScaleRule{.interval = static_cast<float>(options.growth_steps)}),
      sharded_(sharded),
      state_(nn::Tensor::from<float>(backend, {3},
                                     std::array{static_cast<float>(options.scale), 0.0F, 0.0F})),
      step_(nn::Tensor::zeros(backend, {2})),
      loss_gradient_(nn::Tensor::zeros(backend, {})),
      not_finite_(nn::Tensor::zeros(backend, {1})) {}

nn::LossScaleState* LossScaler::device_state() const {
  return reinterpret_cast<nn::LossScaleState*>(state_.data<float>());
}
const nn::LossScaleStep* LossScaler::device_step() const {
  return reinterpret_cast<const nn::LossScaleStep*>(step_.data<const float>());
}

void LossScaler::prepare(double samples, std::size_t micro_batches) {
  const double parts = static_cast<double>(micro_batches) * static_cast<double>(world_.size());
  const nn::LossScaleStep step{
      .loss_factor = samples > 0 ? static_cast<float>(parts / samples) : 0.0F,
      .parts = static_cast<float>(parts)};
  step_.set_values<float>(std::bit_cast<StepFloats>(step));
}

nn::Tensor LossScaler::begin_step() {
  backend_.optimizer().begin_scaled_step(device_state(), device_step(),
                                         loss_gradient_.data<float>(), not_finite_.data<float>());
  return loss_gradient_;
}

void LossScaler::unscale(std::int64_t count, float* gradients) {
  backend_.optimizer().unscale(count, device_state(), device_step(), gradients,
                               not_finite_.data<float>());
}

void LossScaler::decide() {
  if (sharded_)
    throw_if_error(world_.all_reduce(memory_of(not_finite_), ReduceOp::kMax).within("loss scale"));
  backend_.optimizer().move_loss_scale(rule_, not_finite_.data<const float>(), device_state());
}

std::vector<nn::NamedTensor> LossScaler::state() const {
  std::vector<nn::NamedTensor> all;
  std::int64_t place = 0;
  for (const char* name : {"scale", "good_steps", "skipped_steps"})
    all.push_back({std::string("loss_scaling.") + name, nn::Tensor::view_of(state_, place++, {1})});
  return all;
}

nn::LossScaleState LossScaler::read() const {
  StateFloats floats{};
  backend_.copy_to_host(floats.data(), state_.data<const float>(), sizeof floats);
  return std::bit_cast<nn::LossScaleState>(floats);
}

}  // namespace dlaunch
