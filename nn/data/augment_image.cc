#include "nn/data/augment_image.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "runtime/base/multiversion.h"

namespace dlaunch::nn {
namespace {

constexpr std::size_t kRow = 96;  // values that are normalised together; a multiple of 1, 2, 3, 4

/// What kRow values in a row are normalised with.
struct RowFactors {
  std::array<float, kRow> means;
  std::array<float, kRow> factors;

  explicit RowFactors(const AugmentationPlan& plan) {
    const auto channels = static_cast<std::size_t>(plan.channels);
    for (std::size_t i = 0; i < kRow; ++i) {
      means[i] = plan.means[i % channels];
      factors[i] = plan.factors[i % channels];
    }
  }
};

/// A difference and a product round alike on every CPU, unlike what may become a fused operation.
DLAUNCH_MULTIVERSION void normalise_bytes(std::size_t count, const std::uint8_t* __restrict bytes,
                                          const float* __restrict means,
                                          const float* __restrict factors, float* __restrict out) {
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i)
    out[i] = (static_cast<float>(bytes[i]) - means[i]) * factors[i];
}

/// Of a pixel of the stored image.
std::ptrdiff_t offset_of(const AugmentationPlan& plan, int row, int column) {
  return (std::ptrdiff_t{row} * plan.width + column) * plan.channels;
}

/// Row `y` of the image after crop and flip, as stored.
void crop_row(const AugmentationPlan& plan, const ImageDraw& draw, const std::uint8_t* image, int y,
              std::uint8_t* out) {
  const int row = stored_position(plan.pad_mode, y + draw.shift_y, plan.height);
  for (int x = 0; x < plan.width; ++x, out += plan.channels) {
    const int column = stored_position(
        plan.pad_mode, (draw.flip ? plan.width - 1 - x : x) + draw.shift_x, plan.width);
    if (row < 0 || column < 0)
      std::fill_n(out, plan.channels, std::uint8_t{0});
    else
      std::copy_n(image + offset_of(plan, row, column), plan.channels, out);
  }
}

void cut_out(const AugmentationPlan& plan, const ImageDraw& draw, std::span<float> out) {
  const int top = draw.cut_y - plan.cutout / 2;
  const int left = std::max(draw.cut_x - plan.cutout / 2, 0);
  const int right = std::min(draw.cut_x - plan.cutout / 2 + plan.cutout, plan.width);
  for (int y = std::max(top, 0); y < std::min(top + plan.cutout, plan.height) && left < right; ++y)
    std::fill_n(out.begin() + offset_of(plan, y, left), (right - left) * plan.channels, 0.0F);
}

/// Where bytes only change their places.
void move_pixels(const AugmentationPlan& plan, const ImageDraw& draw,
                 std::span<const std::uint8_t> image, std::span<float> out) {
  std::vector<std::uint8_t> cropped(image.size());
  for (int y = 0; y < plan.height; ++y)
    crop_row(plan, draw, image.data(), y, cropped.data() + offset_of(plan, y, 0));
  normalise_images(plan, cropped, out);
  cut_out(plan, draw, out);
}

}  // namespace

void augment_image(const AugmentationPlan& plan, const ImageDraw& draw,
                   std::span<const std::uint8_t> image, std::span<float> out) {
  if (!plan.jitters() && !plan.resizes()) return move_pixels(plan, draw, image, out);
  const auto sum = std::accumulate(image.begin(), image.end(), std::uint64_t{0});
  const float mean = static_cast<float>(sum) / static_cast<float>(image.size());
  auto to = out.begin();
  for (int y = 0; y < plan.out_height; ++y)
    for (int x = 0; x < plan.out_width; ++x)
      for (int c = 0; c < plan.channels; ++c)
        *to++ = batch_value(plan, draw, mean, image.data(), y, x, c);
}

void normalise_images(const AugmentationPlan& plan, std::span<const std::uint8_t> images,
                      std::span<float> out) {
  const RowFactors row(plan);
  for (std::size_t begin = 0; begin < images.size(); begin += kRow)
    normalise_bytes(std::min(kRow, images.size() - begin), &images[begin], row.means.data(),
                    row.factors.data(), &out[begin]);
}

}  // namespace dlaunch::nn
