#include "trainers/training/datasets.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "nn/data/synthetic.h"

namespace dlaunch {
namespace {

// Some hundred of them are handed over together.
TEST(TrainingImages, GiveTheirPatchesEachOnce) {
  constexpr std::size_t kImages = 530;
  constexpr nn::ImageShape kShape{4, 4, 3};
  const auto dataset =
      nn::make_synthetic({.classes = 3, .train_size = 600, .shape = kShape}, nn::Split::kTrain);
  const nn::ImageTransform transform(kShape, {{0.5, 0.4, 0.3}, {0.25, 0.5, 0.25}}, {});
  nn::PatchCovariance together(2, 3), one_by_one(2, 3);
  add_training_images(*dataset, transform, kImages, together);
  std::vector<std::uint8_t> pixels(kShape.size());
  std::vector<float> image(kShape.size());
  for (std::size_t i = 0; i < kImages; ++i) {
    dataset->copy_image(i, pixels);
    transform.normalise(pixels, image);
    one_by_one.add(image, 4, 4);
  }
  const std::vector<float> actual = together.filters(1e-2, true);
  const std::vector<float> expected = one_by_one.filters(1e-2, true);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-3) << i;
}

}  // namespace
}  // namespace dlaunch
