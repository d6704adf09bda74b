#include "nn/optim/ema.h"

#include <utility>
#include <vector>

#include "nn/core/optimizer_kernels.h"

namespace dlaunch::nn {
Ema::Ema(std::vector<NamedTensor> tensors, double decay)
    : tensors_(std::move(tensors)), decay_(decay) {
  if (!(decay >= 0 && decay < 1)) throw Error("ema: decay must be in [0, 1)");
  averages_.reserve(tensors_.size());
  for (const NamedTensor& item : tensors_)
    averages_.push_back({item.name, Tensor::empty(item.tensor.backend(), item.tensor.shape()),
                         item.image_channels});
  reset();
}

void Ema::update() {
  if (tensors_.empty()) return;
  std::vector<AveragedValues> all;
  all.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    all.push_back({.count = averages_[i].tensor.size(),
                   .values = tensors_[i].tensor.data<const float>(),
                   .average = averages_[i].tensor.data<float>()});
  tensors_.front().tensor.backend().optimizer().move_averages(all, decay_);
}

void Ema::reset() {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    copy_values(tensors_[i].tensor, averages_[i].tensor);
}

void Ema::swap() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& average = averages_[i].tensor;
    const Tensor kept = Tensor::empty(average.backend(), average.shape());
    copy_values(tensors_[i].tensor, kept);
    copy_values(average, tensors_[i].tensor);
    copy_values(kept, average);
  }
}

}  // namespace dlaunch::nn
