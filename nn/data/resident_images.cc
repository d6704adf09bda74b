#include "nn/data/resident_images.h"

#include <algorithm>
#include <vector>

namespace dlaunch::nn {
namespace {

constexpr std::size_t kUpload = std::size_t{16} << 20;  // bytes of images, copied at once

std::int64_t extent(std::size_t size) {
  return static_cast<std::int64_t>(size);
}

}  // namespace

std::vector<std::int32_t> numbers_of(const MicroBatch& batch) {
  std::vector<std::int32_t> numbers(batch.labels);
  numbers.insert(numbers.end(), batch.samples.begin(), batch.samples.end());
  numbers.insert(numbers.end(), batch.partners.begin(), batch.partners.end());
  return numbers;
}

ResidentImages::ResidentImages(Backend& backend, const Dataset& dataset,
                               const ImageTransform& transform, std::uint64_t seed,
                               std::size_t samples)
    : transform_(transform), seed_(seed), samples_(samples) {
  const ImageShape& shape = transform_.shape();
  const std::size_t size = shape.size();
  images_ = Tensor::empty(
      backend,
      {extent(dataset.size()), extent(shape.height), extent(shape.width), extent(shape.channels)},
      DType::kU8);
  auto* const to = images_.data<std::uint8_t>();
  const std::size_t together = std::clamp<std::size_t>(kUpload / size, 1, dataset.size());
  std::vector<std::uint8_t> bytes(together * size);
  for (std::size_t begin = 0; begin < dataset.size(); begin += together) {
    const std::size_t count = std::min(together, dataset.size() - begin);
    for (std::size_t i = 0; i < count; ++i)
      dataset.copy_image(begin + i, std::span(bytes).subspan(i * size, size));
    backend.copy_from_host(to + begin * size, bytes.data(), count * size);
  }
}

void ResidentImages::make(const MicroBatch& batch, const Tensor& numbers,
                          const Tensor& images) const {
  const auto* const labels =
      reinterpret_cast<const std::uint32_t*>(numbers.data<const std::int32_t>());
  images.backend().augment({.plan = plan_of(transform_, batch, samples_),
                            .n = extent(batch.size),
                            .images = images_.data<const std::uint8_t>(),
                            .samples = labels + batch.size,
                            .drawn = transform_.augments(),
                            .fixed = {},
                            .first = first_place_of(batch, seed_),
                            .partners = batch.partners.empty() ? nullptr : labels + 2 * batch.size,
                            .last_place = batch.last_place,
                            .mix = batch.mix},
                           images.write());
}

}  // namespace dlaunch::nn
