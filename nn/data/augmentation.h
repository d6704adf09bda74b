// What becomes of a stored image on its way into a batch, as pure functions that the CPU and
// kernels of a GPU share: the random choices made for it, and the value of each pixel.
//
// A choice is a function of (seed, epoch, sample) or of (seed, epoch, step), never of the device or
// the rank that makes it. In this order: crop, flip, brightness and contrast, cutout, resizing,
// normalisation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "nn/core/random.h"
#include "nn/data/streams.h"
#include "nn/data/triangle_filter.h"

namespace dlaunch::nn {

enum class PadMode : std::uint8_t { kZero, kReflect };

enum class FlipMode : std::uint8_t {
  kNone,
  kRandom,       // half of the time
  kAlternating,  // in the first epoch half of the samples, then every sample every other epoch
                 // (Jordan 2024, https://arxiv.org/abs/2404.00498)
  kFirstHalf,    // the first half of the epoch's order
};

inline constexpr int kMostChannels = 4;

/// The same for all images of a batch. Plain values: kernels get it as it is.
struct AugmentationPlan {
  int height = 0, width = 0, channels = 0;  // of stored images; channels at most kMostChannels
  int out_height = 0, out_width = 0;        // of the batch; less: averaged, as by a triangle filter
  int crop_padding = 0;
  PadMode pad_mode = PadMode::kZero;
  bool crop_batch = false;  // one offset for all images of a step
  FlipMode flip = FlipMode::kNone;
  int cutout = 0;
  float brightness = 0;
  float contrast = 0;
  std::uint64_t half = 0;                      // of the samples of an epoch
  std::array<float, kMostChannels> means{};    // of bytes
  std::array<float, kMostChannels> factors{};  // 1 over the deviation

  constexpr bool jitters() const { return brightness > 0 || contrast > 0; }
  constexpr bool resizes() const { return out_height != height || out_width != width; }
};

/// Which image in which epoch.
struct ImagePlace {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;    // of the epoch
  std::uint64_t sample = 0;  // of the data set
  std::uint64_t place = 0;   // in the epoch's order
};

/// What is done to one image. The default does nothing.
struct ImageDraw {
  int shift_y = 0, shift_x = 0;  // from where in the padded image it is cut
  bool flip = false;
  float gain = 1;            // brightness: of all values
  float contrast = 1;        // of the distance from the image's mean
  int cut_y = 0, cut_x = 0;  // the centre of the square
};

/// The words of a random sequence, from its beginning.
class WordSequence {
 public:
  constexpr WordSequence(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  constexpr std::uint32_t next() {
    if (position_ % 4 == 0) block_ = philox_block(seed_, stream_, position_ / 4);
    return block_[position_++ % 4];
  }
  /// Uniform in [0, bound), as Generator::below.
  constexpr std::uint32_t below(std::uint32_t bound) {
    return random_below(bound, [this] { return next(); });
  }
  /// Uniform in [1 - range, 1 + range).
  constexpr float around_one(float range) {
    constexpr float kUnit = 0x1p-24F;
    return 1.0F + range * (2.0F * (static_cast<float>(next() >> 8) * kUnit) - 1.0F);
  }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t position_ = 0;
  std::array<std::uint32_t, 4> block_{};
};

constexpr bool draw_flip(const AugmentationPlan& plan, const ImagePlace& at, bool random) {
  switch (plan.flip) {
    case FlipMode::kNone:
      return false;
    case FlipMode::kRandom:
      return random;
    case FlipMode::kAlternating: {
      const std::uint64_t stream = random_stream(RandomPurpose::kFlip, 0, at.sample);
      return (WordSequence(at.seed, stream).below(2) + at.epoch) % 2 == 1;
    }
    case FlipMode::kFirstHalf:
      return at.place < plan.half;
  }
  return false;
}

/// All numbers are drawn whether or not they are used: switching one augmentation on or off leaves
/// the others as they were.
constexpr ImageDraw draw_image(const AugmentationPlan& plan, const ImagePlace& at) {
  WordSequence words(at.seed, random_stream(RandomPurpose::kAugmentation, at.epoch, at.sample));
  const auto offsets = static_cast<std::uint32_t>(2 * plan.crop_padding + 1);
  ImageDraw draw;
  draw.shift_y = static_cast<int>(words.below(offsets)) - plan.crop_padding;
  draw.shift_x = static_cast<int>(words.below(offsets)) - plan.crop_padding;
  draw.flip = draw_flip(plan, at, words.below(2) == 1);
  draw.cut_y = static_cast<int>(words.below(static_cast<std::uint32_t>(plan.height)));
  draw.cut_x = static_cast<int>(words.below(static_cast<std::uint32_t>(plan.width)));
  draw.gain = words.around_one(plan.brightness);
  draw.contrast = words.around_one(plan.contrast);
  if (plan.crop_batch) {
    WordSequence shared(at.seed, random_stream(RandomPurpose::kBatchCrop, at.epoch, at.step));
    draw.shift_y = static_cast<int>(shared.below(offsets)) - plan.crop_padding;
    draw.shift_x = static_cast<int>(shared.below(offsets)) - plan.crop_padding;
  }
  return draw;
}

/// Where a coordinate of the padded image lies in the stored one; -1: it is black. Reflection does
/// not repeat the edge: -1 becomes 1, if there is one.
constexpr int stored_position(PadMode mode, int position, int size) {
  if (mode == PadMode::kReflect) {
    if (size == 1) return 0;
    if (position < 0) return -position;
    return position < size ? position : 2 * size - 2 - position;
  }
  return position >= 0 && position < size ? position : -1;
}

constexpr bool is_cut(const AugmentationPlan& plan, const ImageDraw& draw, int y, int x) {
  const int top = draw.cut_y - plan.cutout / 2;
  const int left = draw.cut_x - plan.cutout / 2;
  return y >= top && y < top + plan.cutout && x >= left && x < left + plan.cutout;
}

/// Brightness and contrast of one value in [0, 255]; `mean` is of the stored image's bytes.
constexpr float jittered(const ImageDraw& draw, float value, float mean) {
  const float moved = ((value - mean) * draw.contrast + mean) * draw.gain;
  return moved < 0 ? 0.0F : moved > 255 ? 255.0F : moved;
}

constexpr float normalised(const AugmentationPlan& plan, float value, int channel) {
  const auto c = static_cast<std::size_t>(channel);
  return (value - plan.means[c]) * plan.factors[c];
}

/// Channel `channel` of pixel (y, x), in [0, 255], after all steps but resizing and normalisation.
/// `image` is [height, width, channels].
constexpr float source_value(const AugmentationPlan& plan, const ImageDraw& draw, float mean,
                             const std::uint8_t* image, int y, int x, int channel) {
  if (plan.cutout > 0 && is_cut(plan, draw, y, x))
    return plan.means[static_cast<std::size_t>(channel)];
  const int row = stored_position(plan.pad_mode, y + draw.shift_y, plan.height);
  const int column = stored_position(
      plan.pad_mode, (draw.flip ? plan.width - 1 - x : x) + draw.shift_x, plan.width);
  const bool black = row < 0 || column < 0;
  const float value =
      black ? 0.0F
            : static_cast<float>(image[(row * plan.width + column) * plan.channels + channel]);
  return plan.jitters() ? jittered(draw, value, mean) : value;
}

/// Channel `channel` of pixel (y, x) of the batch's image.
constexpr float batch_value(const AugmentationPlan& plan, const ImageDraw& draw, float mean,
                            const std::uint8_t* image, int y, int x, int channel) {
  if (!plan.resizes())
    return normalised(plan, source_value(plan, draw, mean, image, y, x, channel), channel);
  const AxisTaps<float> rows = taps_of<float>(y, plan.height, plan.out_height);
  const AxisTaps<float> columns = taps_of<float>(x, plan.width, plan.out_width);
  float sum = 0, weights = 0;
  for (int row = rows.first; row < rows.last; ++row)
    for (int column = columns.first; column < columns.last; ++column) {
      const float weight = rows.weight(row) * columns.weight(column);
      sum += weight * source_value(plan, draw, mean, image, row, column, channel);
      weights += weight;
    }
  return normalised(plan, sum / weights, channel);
}

/// How two images become one: a sum, or a rectangle of the one in the other (nn/data/mix.h).
struct Mix {
  float own_share = 1;  // of an image in its mixture, and of its label in the loss
  bool rectangle = false;
  int top = 0, bottom = 0, left = 0, right = 0;  // what comes from the partner
};

constexpr float mixed(const Mix& mix, int y, int x, float own, float partner) {
  if (!mix.rectangle) return mix.own_share * own + (1 - mix.own_share) * partner;
  const bool inside = y >= mix.top && y < mix.bottom && x >= mix.left && x < mix.right;
  return inside ? partner : own;
}

/// A batch to be made of stored images in a backend's memory (Backend::augment).
struct AugmentedBatch {
  AugmentationPlan plan;
  std::int64_t n = 0;
  const std::uint8_t* images = nullptr;    // all stored images
  const std::uint32_t* samples = nullptr;  // [n] of them; null: 0 ... n-1
  bool drawn = false;                      // each image as draw_image says; else all as `fixed`
  ImageDraw fixed;
  ImagePlace first;  // of the first image; the places of the others follow
  /// Null: nothing is mixed. [n] samples, whose places go backwards from `last_place`.
  const std::uint32_t* partners = nullptr;
  std::uint64_t last_place = 0;
  Mix mix;
};

constexpr ImageDraw draw_of(const AugmentedBatch& batch, std::int64_t index, bool partner) {
  if (!batch.drawn) return batch.fixed;
  const auto i = static_cast<std::uint64_t>(index);
  ImagePlace at = batch.first;
  at.sample = (partner ? batch.partners : batch.samples)[index];
  at.place = partner ? batch.last_place - i : batch.first.place + i;
  return draw_image(batch.plan, at);
}

}  // namespace dlaunch::nn
