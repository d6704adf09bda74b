#include "trainers/device/step_losses.h"

#include "nn/core/backend.h"
#include "nn/parallel/tensor_memory.h"

namespace dlaunch {

StepLosses::StepLosses(nn::Backend& backend, Communicator& world)
    : world_(world),
      step_(nn::Tensor::zeros(backend, {1})),
      kept_(nn::Tensor::zeros(backend, {static_cast<std::int64_t>(kKept)})) {}

void StepLosses::begin_step() {
  step_.backend().fill(1, 0.0F, step_.data<float>());
}

void StepLosses::add(const nn::Tensor& loss) {
  step_.backend().axpy(1, 1.0F, loss.data<const float>(), step_.data<float>());
}

void StepLosses::end_step() {
  step_.backend().copy(kept_.data<float>() + count_, step_.data<const float>(), sizeof(float));
  ++count_;
}

std::vector<double> StepLosses::take() {
  if (count_ == 0) return {};
  const std::span<float> kept = memory_of(kept_).first(count_);
  throw_if_error(world_.all_reduce(kept).within("losses"));
  std::vector<float> values(count_);
  kept_.backend().copy_to_host(values.data(), kept.data(), kept.size_bytes());
  count_ = 0;
  return {values.begin(), values.end()};
}

}  // namespace dlaunch
