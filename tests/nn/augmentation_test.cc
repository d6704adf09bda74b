// What is drawn for an image, its pixels written out plainly, and batches made in a backend's
// memory.
#include "nn/data/augmentation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/ops.h"
#include "nn/data/augment_image.h"
#include "nn/data/resident_images.h"
#include "nn/data/synthetic.h"
#include "nn/data/transform.h"
#include "tests/nn/test_backend.h"

namespace dlaunch::nn {
namespace {

const Normalization kNormalization{{0.5, 0.25, 0.4}, {0.5, 2.0, 0.3}};
constexpr ImageShape kShape{10, 10, 3};

AugmentationPlan plan_for(const Augmentation& augmentation, std::size_t side = 0,
                          std::size_t samples = 100) {
  return ImageTransform(kShape, kNormalization, augmentation).plan(side, samples);
}

// Usable where only constants are: so in device code too.
constexpr AugmentationPlan kConstantPlan{
    .height = 4, .width = 4, .channels = 1, .out_height = 4, .out_width = 4, .crop_padding = 1};
static_assert(draw_image(kConstantPlan, {.seed = 1}).shift_x <= 1);
static_assert(stored_position(PadMode::kReflect, -2, 5) == 2);
static_assert(stored_position(PadMode::kReflect, 6, 5) == 2);
static_assert(stored_position(PadMode::kZero, 5, 5) == -1);
static_assert(stored_position(PadMode::kReflect, -1, 1) == 0);
static_assert(stored_position(PadMode::kReflect, 1, 1) == 0);
static_assert(stored_position(PadMode::kReflect, -1, 2) == 1);
static_assert(stored_position(PadMode::kReflect, 2, 2) == 0);

std::vector<std::uint8_t> noise(std::uint64_t seed) {
  std::vector<std::uint8_t> image(kShape.size());
  Generator generator(seed);
  for (auto& byte : image) byte = static_cast<std::uint8_t>(generator.below(256));
  return image;
}

TEST(Augmentation, AlternatingFlipsShowEverySampleFromBothSides) {
  const AugmentationPlan plan = plan_for({.flip = FlipMode::kAlternating});
  int flipped = 0;
  for (std::uint64_t sample = 0; sample < 1000; ++sample) {
    const auto at = [&](std::uint64_t epoch) {
      return draw_image(plan, {.seed = 3, .epoch = epoch, .sample = sample}).flip;
    };
    flipped += at(0) ? 1 : 0;
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch) EXPECT_NE(at(epoch), at(epoch + 1));
  }
  EXPECT_NEAR(flipped, 500, 80);  // five deviations
}

TEST(Augmentation, TheFirstHalfOfAnEpochIsFlipped) {
  for (const std::size_t samples : {100U, 101U}) {
    const AugmentationPlan plan = plan_for({.flip = FlipMode::kFirstHalf}, 0, samples);
    for (std::uint64_t place = 0; place < samples; ++place)
      EXPECT_EQ(draw_image(plan, {.seed = 1, .epoch = 5, .sample = 7, .place = place}).flip,
                place < 50);
  }
}

TEST(Augmentation, ABatchIsCutOutAtOnePlaceAndTheNextOneAtAnother) {
  const AugmentationPlan plan = plan_for({.crop_padding = 4, .crop_batch = true});
  std::set<std::pair<int, int>> places;
  for (std::uint64_t step = 0; step < 60; ++step) {
    const auto at = [&](std::uint64_t sample) {
      const ImageDraw draw = draw_image(plan, {.seed = 1, .step = step, .sample = sample});
      return std::pair(draw.shift_y, draw.shift_x);
    };
    for (std::uint64_t sample = 1; sample < 20; ++sample) EXPECT_EQ(at(sample), at(0));
    places.insert(at(0));
  }
  EXPECT_GT(places.size(), 25U);  // of 81
}

TEST(Augmentation, SwitchingOneOnLeavesTheOthersAsTheyWere) {
  const ImagePlace place{.seed = 4, .epoch = 2, .sample = 9};
  const ImageDraw all = draw_image(plan_for({.crop_padding = 2,
                                             .flip = FlipMode::kRandom,
                                             .brightness = 0.3,
                                             .contrast = 0.3,
                                             .cutout = 3}),
                                   place);
  EXPECT_EQ(draw_image(plan_for({.cutout = 3}), place).cut_x, all.cut_x);
  EXPECT_EQ(draw_image(plan_for({.flip = FlipMode::kRandom}), place).flip, all.flip);
  EXPECT_EQ(draw_image(plan_for({.brightness = 0.3}), place).gain, all.gain);
  EXPECT_EQ(draw_image(plan_for({.brightness = 0.3}), place).contrast, 1.0F);
}

TEST(Augmentation, BrightnessAndContrastAreFactorsOfValuesAndOfTheirDistanceFromTheMean) {
  const auto image = noise(8);
  double mean = 0;
  for (const std::uint8_t byte : image) mean += byte / static_cast<double>(image.size());
  const AugmentationPlan plan = plan_for({.brightness = 0.4, .contrast = 0.5});
  double least = 2, most = 0;
  for (std::uint64_t sample = 0; sample < 50; ++sample) {
    const ImageDraw draw = draw_image(plan, {.seed = 1, .sample = sample});
    least = std::min(least, static_cast<double>(draw.gain));
    most = std::max(most, static_cast<double>(draw.gain));
    std::vector<float> out(image.size());
    augment_image(plan, draw, image, out);
    for (std::size_t i = 0; i < image.size(); ++i) {
      const double value = ((image[i] - mean) * static_cast<double>(draw.contrast) + mean) *
                           static_cast<double>(draw.gain);
      const double expected = (std::clamp(value, 0.0, 255.0) / 255 - kNormalization.mean[i % 3]) /
                              kNormalization.deviation[i % 3];
      ASSERT_NEAR(out[i], expected, 1e-4);
    }
  }
  EXPECT_LT(least, 0.7);
  EXPECT_GT(most, 1.3);
  EXPECT_GE(least, 0.6 - 1e-6);
  EXPECT_LE(most, 1.4 + 1e-6);
}

// As PIL and torch's antialiased bilinear interpolation have it: a triangle of the scale's width.
TEST(Augmentation, SmallerImagesAreWeightedMeansOfWhatTheyCover) {
  const auto image = noise(5);
  for (const std::size_t side : {6UL, 5UL, 9UL, 15UL}) {
    const AugmentationPlan plan = plan_for({}, side);
    std::vector<float> out(side * side * 3);
    augment_image(plan, {}, image, out);
    const double scale = 10.0 / static_cast<double>(side), radius = std::max(scale, 1.0);
    const auto weight = [&](std::size_t index, std::size_t position) {
      const double centre = (static_cast<double>(index) + 0.5) * scale;
      return std::max(0.0, 1 - std::abs(static_cast<double>(position) + 0.5 - centre) / radius);
    };
    for (std::size_t y = 0; y < side; ++y)
      for (std::size_t x = 0; x < side; ++x)
        for (std::size_t c = 0; c < 3; ++c) {
          double sum = 0, weights = 0;
          for (std::size_t i = 0; i < 10; ++i)
            for (std::size_t j = 0; j < 10; ++j) {
              sum += weight(y, i) * weight(x, j) * image[(i * 10 + j) * 3 + c];
              weights += weight(y, i) * weight(x, j);
            }
          const double expected =
              (sum / weights / 255 - kNormalization.mean[c]) / kNormalization.deviation[c];
          ASSERT_NEAR(out[(y * side + x) * 3 + c], expected, 1e-4);
        }
  }
}

TEST(Augmentation, RefusesMoreChannelsThanItHasRoomFor) {
  EXPECT_THROW(ImageTransform({4, 4, 5}, {std::vector(5, 0.5), std::vector(5, 0.5)}, {}), Error);
}

/// Everything at once, in both ways: made by the loader on the CPU, and in the backend's memory.
class ResidentImagesTest : public ::testing::TestWithParam<MixKind> {};

TEST_P(ResidentImagesTest, AreThoseThatTheLoaderMakes) {
  const SyntheticOptions synthetic{.classes = 7, .train_size = 53, .shape = kShape};
  const auto dataset = make_synthetic(synthetic, Split::kTrain);
  const auto backend = make_test_backend();
  for (const FlipMode flip : {FlipMode::kRandom, FlipMode::kAlternating, FlipMode::kFirstHalf})
    for (const bool jitter : {false, true}) {
      const ImageTransform transform(kShape, kNormalization,
                                     {.crop_padding = 3,
                                      .pad_mode = jitter ? PadMode::kReflect : PadMode::kZero,
                                      .crop_batch = jitter,
                                      .flip = flip,
                                      .brightness = jitter ? 0.3 : 0,
                                      .contrast = jitter ? 0.3 : 0,
                                      .cutout = 4});
      const StepPlan plan(53, 16, 2, 3);
      const BatchLoaderOptions options{.plan = plan,
                                       .rank = 1,
                                       .seed = 3,
                                       .mix = {.kind = GetParam()},
                                       .resize = {{0.5, 7}, {1.25, 5}}};
      BatchLoaderOptions without = options;
      without.pixels = false;
      BatchLoader making(*dataset, transform, options), naming(*dataset, transform, without);
      const ResidentImages resident(*backend, *dataset, transform, 3, plan.samples());
      std::set<std::size_t> sides;
      for (int i = 0; i < 16; ++i) {
        const MicroBatch& expected = making.next();
        const MicroBatch& batch = naming.next();
        EXPECT_TRUE(batch.images.empty());
        EXPECT_EQ(batch.labels, expected.labels);
        EXPECT_EQ(batch.partner_labels, expected.partner_labels);
        sides.insert(batch.shape.height);
        const std::vector<std::int32_t> all_numbers = numbers_of(batch);
        const Tensor numbers = Tensor::from<std::int32_t>(
            *backend, {static_cast<int>(all_numbers.size())}, all_numbers);
        const auto made_in = [&](DType type) {
          const auto side = static_cast<std::int64_t>(batch.shape.height);
          const Tensor images =
              Tensor::empty(*backend, {static_cast<std::int64_t>(batch.size), side, side, 3}, type);
          resident.make(batch, numbers, images);
          return convert(images, DType::kF32).host_values<float>();
        };
        const auto actual = made_in(DType::kF32);
        ASSERT_EQ(actual.size(), expected.images.size());
        // Where nothing is added up, bit for bit; else up to how sums are rounded.
        const bool moved = !jitter && GetParam() != MixKind::kMixup && batch.shape == kShape;
        for (std::size_t k = 0; k < actual.size(); ++k)
          ASSERT_NEAR(actual[k], expected.images[k], moved ? 0.0 : 2e-5);
        if (i != 0) continue;
        for (const DType type : {DType::kBF16, DType::kF16}) {
          if (type == DType::kF16 && !backend->computes_in(type)) continue;
          const auto rounded = made_in(type);
          for (std::size_t k = 0; k < actual.size(); ++k)
            ASSERT_NEAR(rounded[k], actual[k], 1e-6 + std::abs(actual[k]) / 256);
        }
      }
      EXPECT_EQ(sides, (std::set<std::size_t>{5, 7, 10}));
    }
}

// They are copied there 16 MiB at a time.
TEST(ResidentImages, AreAllThereIfTheyAreMoreThanIsCopiedAtOnce) {
  constexpr ImageShape kLarge{64, 64, 3};
  const auto dataset =
      make_synthetic({.classes = 2, .train_size = 1500, .shape = kLarge}, Split::kTrain);
  const auto backend = make_test_backend();
  const ImageTransform transform(kLarge, kNormalization, {});
  const ResidentImages resident(*backend, *dataset, transform, 3, 1500);
  MicroBatch batch;
  batch.shape = kLarge;
  for (const std::uint32_t sample : {0U, 700U, 1364U, 1365U, 1499U}) {
    batch.samples.push_back(sample);
    batch.labels.push_back(dataset->label(sample));
  }
  batch.size = batch.samples.size();
  const std::vector<std::int32_t> all_numbers = numbers_of(batch);
  const Tensor numbers = Tensor::from<std::int32_t>(
      *backend, {static_cast<std::int64_t>(all_numbers.size())}, all_numbers);
  const Tensor images = Tensor::empty(*backend, {static_cast<std::int64_t>(batch.size), 64, 64, 3});
  resident.make(batch, numbers, images);
  const std::vector<float> made = images.host_values<float>();
  std::vector<std::uint8_t> pixels(kLarge.size());
  std::vector<float> expected(kLarge.size());
  for (std::size_t i = 0; i < batch.size; ++i) {
    dataset->copy_image(batch.samples[i], pixels);
    transform.normalise(pixels, expected);
    const auto begin = made.begin() + static_cast<std::ptrdiff_t>(i * expected.size());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), begin)) << batch.samples[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Mixes, ResidentImagesTest,
                         ::testing::Values(MixKind::kNone, MixKind::kMixup, MixKind::kCutmix));

}  // namespace
}  // namespace dlaunch::nn
