#include "trainers/device/device_batches.h"

#include <span>

namespace dlaunch {

double samples_of(const std::vector<DeviceBatch>& batches) {
  double samples = 0;
  for (const DeviceBatch& batch : batches) samples += static_cast<double>(batch.labels.size());
  return samples;
}

std::array<std::int64_t, 2> sides_of(const std::vector<DeviceBatch>& batches) {
  if (batches.empty()) return {};
  const nn::Shape& shape = batches.front().images.shape();
  return {shape[1], shape[2]};
}

const std::vector<DeviceBatch>& DeviceBatches::load(
    std::size_t count, const std::function<const nn::MicroBatch&()>& next) {
  current_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const nn::MicroBatch& batch = next();
    DeviceBatch place = place_of(i, batch);
    place.numbers.set_values(std::span<const std::int32_t>(numbers_of(batch)));
    if (resident_ != nullptr) {
      resident_->make(batch, place.numbers, place.images);
    } else {
      place.images.set_values(std::span<const float>(batch.images));
    }
    if (!batch.partner_labels.empty()) {
      place.own_labels = batch.labels;
      place.partner_labels = batch.partner_labels;
      place.own_share = batch.own_share;
    }
    current_.push_back(std::move(place));
  }
  return current_;
}

DeviceBatch& DeviceBatches::place_of(std::size_t index, const nn::MicroBatch& batch) {
  const nn::ImageShape& shape = batch.shape;
  DeviceBatch& place = places_[{index, batch.size, shape.height, shape.width}];
  if (!place.images.defined()) {
    const auto samples = static_cast<std::int64_t>(batch.size);
    place.images = nn::Tensor::empty(
        backend_,
        {samples, static_cast<std::int64_t>(shape.height), static_cast<std::int64_t>(shape.width),
         static_cast<std::int64_t>(shape.channels)},
        type_);
    const std::int64_t numbers = batch.partners.empty() ? 2 : 3;
    place.numbers = nn::Tensor::empty(backend_, {numbers * samples}, DType::kI32);
    place.labels = nn::Tensor::view_of(place.numbers, 0, {samples});
  }
  return place;
}

}  // namespace dlaunch
