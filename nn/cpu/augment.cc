#include "nn/data/augment_image.h"

#include <vector>

#include "nn/cpu/activation.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/parallel.h"

namespace dlaunch::nn::cpu {
namespace {

/// Image `index` of the batch, or its partner, as floats.
void make_image(const AugmentedBatch& batch, std::int64_t index, bool partner,
                std::span<float> out) {
  const AugmentationPlan& plan = batch.plan;
  const std::size_t size = std::size_t{1} * static_cast<unsigned>(plan.height) *
                           static_cast<unsigned>(plan.width) * static_cast<unsigned>(plan.channels);
  const std::uint32_t* const samples = partner ? batch.partners : batch.samples;
  const auto sample = static_cast<std::size_t>(samples == nullptr ? index : samples[index]);
  augment_image(plan, draw_of(batch, index, partner), {batch.images + sample * size, size}, out);
}

void mix_into(const AugmentedBatch& batch, std::span<const float> partner, std::span<float> image) {
  std::size_t i = 0;
  for (int y = 0; y < batch.plan.out_height; ++y)
    for (int x = 0; x < batch.plan.out_width; ++x)
      for (int c = 0; c < batch.plan.channels; ++c, ++i)
        image[i] = mixed(batch.mix, y, x, image[i], partner[i]);
}

}  // namespace

void augment(const AugmentedBatch& batch, ArrayRef y) {
  const AugmentationPlan& plan = batch.plan;
  const std::int64_t size = std::int64_t{plan.out_height} * plan.out_width * plan.channels;
  parallel_ranges(batch.n, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> image(static_cast<std::size_t>(size)), partner(image.size());
    for (std::int64_t i = begin; i < end; ++i) {
      make_image(batch, i, false, image);
      if (batch.partners != nullptr) {
        make_image(batch, i, true, partner);
        mix_into(batch, partner, image);
      }
      visit_activation(y.dtype, [&]<typename T>() {
        for (std::int64_t k = 0; k < size; ++k)
          store(as<T>(y)[i * size + k], image[static_cast<std::size_t>(k)]);
      });
    }
  });
}

}  // namespace dlaunch::nn::cpu
