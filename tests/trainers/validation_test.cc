#include "trainers/validation/validation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/data/synthetic.h"
#include "nn/models/model.h"
#include "runtime/comm/counting_communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch {
namespace {

using testing::run_threads_as_ranks;

TEST(AddScores, CountsAsSortingTheScoresWould) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  constexpr std::size_t kClasses = 12, kRows = 200;
  std::vector<float> scores(kClasses * kRows);
  std::vector<std::int32_t> labels(kRows);
  for (float& score : scores) score = normal(random);
  for (auto& label : labels) label = static_cast<std::int32_t>(random() % kClasses);

  double top1 = 0, top5 = 0, loss = 0;
  for (std::size_t i = 0; i < kRows; ++i) {
    std::vector<double> row(scores.begin() + static_cast<std::ptrdiff_t>(i * kClasses),
                            scores.begin() + static_cast<std::ptrdiff_t>((i + 1) * kClasses));
    const double own = row[static_cast<std::size_t>(labels[i])];
    double sum = 0;
    for (const double score : row) sum += std::exp(score);
    loss += std::log(sum) - own;
    std::sort(row.rbegin(), row.rend());
    top1 += own >= row[0] ? 1 : 0;
    top5 += own >= row[4] ? 1 : 0;
  }
  ValidationSums sums;
  add_scores(scores, labels, sums);
  EXPECT_EQ(sums.samples, kRows);
  EXPECT_EQ(sums.top1, top1);
  EXPECT_EQ(sums.top5, top5);
  EXPECT_NEAR(sums.loss, loss, 1e-9 * kRows);
}

TEST(AddScores, SurvivesHugeScoresTiesAndNoNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ValidationSums sums;
  add_scores(std::vector<float>{1000, 0, 0}, std::vector<std::int32_t>{0}, sums);
  EXPECT_EQ(sums.top1, 1);
  EXPECT_NEAR(sums.loss, 0, 1e-12);
  // A network that says the same for everything is right once per class, not always.
  add_scores(std::vector<float>{7, 7, 7, 7, 7, 7}, std::vector<std::int32_t>{0, 1}, sums);
  EXPECT_EQ(sums.top1, 2);
  add_scores(std::vector<float>{nan, nan, 1, nan}, std::vector<std::int32_t>{0, 0}, sums);
  EXPECT_EQ(sums.top1, 2);
  EXPECT_EQ(sums.top5, 4);
  EXPECT_EQ(sums.samples, 5);
}

class DistributedValidation : public ::testing::TestWithParam<int> {
 protected:
  nn::SyntheticOptions options_{.classes = 6, .test_size = 4999, .shape = {8, 8, 3}};
  std::unique_ptr<nn::Dataset> dataset_ = make_synthetic(options_, nn::Split::kTest);
};

TEST_P(DistributedValidation, ScattersEveryImageOnceFromRankZero) {
  std::vector<ValidationShard> shards(static_cast<std::size_t>(GetParam()));
  run_threads_as_ranks(GetParam(), [&](Communicator& inner) {
    CountingCommunicator world(inner);
    const nn::Dataset* mine = world.rank() == 0 ? dataset_.get() : nullptr;
    shards[static_cast<std::size_t>(world.rank())] =
        scatter_validation_set(world, mine, options_.shape);
    EXPECT_GT(world.count(CollectiveKind::kScatter), 0U);
  });

  const std::size_t size = options_.shape.size();
  std::vector<std::vector<std::uint8_t>> scattered, original;
  for (const ValidationShard& shard : shards) {
    ASSERT_EQ(shard.images.size(), shard.labels.size() * size);
    EXPECT_GE(shard.labels.size(), 4999 / shards.size());
    EXPECT_LE(shard.labels.size(), 4999 / shards.size() + 1);
    for (std::size_t i = 0; i < shard.labels.size(); ++i) {
      const auto begin = shard.images.begin() + static_cast<std::ptrdiff_t>(i * size);
      scattered.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
      scattered.back().push_back(static_cast<std::uint8_t>(shard.labels[i]));
    }
  }
  for (std::size_t i = 0; i < dataset_->size(); ++i) {
    original.emplace_back(size);
    dataset_->copy_image(i, original.back());
    original.back().push_back(static_cast<std::uint8_t>(dataset_->label(i)));
  }
  std::sort(scattered.begin(), scattered.end());
  std::sort(original.begin(), original.end());
  EXPECT_EQ(scattered, original);
}

INSTANTIATE_TEST_SUITE_P(Worlds, DistributedValidation, ::testing::Values(1, 2, 3, 5, 12));

TEST(Validate, GivesTheSameSumsForAnySplit) {
  // More ranks than images, too: some shards are empty.
  const nn::SyntheticOptions options{.classes = 6, .test_size = 4, .shape = {32, 32, 3}};
  const auto dataset = make_synthetic(options, nn::Split::kTest);
  const nn::ImageTransform transform(options.shape, {{0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}}, {});
  const auto sums_on = [&](int ranks) {
    ValidationSums sums;
    run_threads_as_ranks(ranks, [&](Communicator& world) {
      const auto backend = nn::make_cpu_backend();
      nn::Generator generator(3);
      const auto model = make_model("small_cnn", {.num_classes = 6}, *backend, generator, nullptr);
      const ValidationShard shard =
          scatter_validation_set(world, world.rank() == 0 ? dataset.get() : nullptr, options.shape);
      const ValidationSums mine =
          validate(world, *backend, *model, transform, shard, {.batch_size = 3});
      EXPECT_TRUE(model->is_training());
      if (world.rank() == world.size() - 1) sums = mine;
    });
    return sums;
  };
  const ValidationSums alone = sums_on(1);
  EXPECT_EQ(alone.samples, 4);
  for (const int ranks : {2, 3, 5}) {
    const ValidationSums split = sums_on(ranks);
    EXPECT_EQ(split.samples, alone.samples);
    EXPECT_EQ(split.top1, alone.top1);
    EXPECT_EQ(split.top5, alone.top5);
    EXPECT_NEAR(split.loss, alone.loss, 1e-4);
  }
}

TEST(Validate, TakesTheMeanOfTheScoresOfAllViewsOfAnImage) {
  const nn::SyntheticOptions options{.classes = 6, .test_size = 11, .shape = {32, 32, 3}};
  const auto dataset = make_synthetic(options, nn::Split::kTest);
  const nn::Normalization normalization{{0.5, 0.4, 0.6}, {0.25, 0.2, 0.3}};
  const auto backend = nn::make_cpu_backend();
  nn::Generator generator(3);
  const auto model = make_model("small_cnn", {.num_classes = 6}, *backend, generator, nullptr);

  // Scores of one image, seen from the left or from the right, moved by so many pixels up and left;
  // all arithmetic is this test's own.
  const auto scores_of = [&](std::size_t index, bool from_the_right, int shift) {
    const auto reflected = [&](std::size_t position) {
      const int moved = std::abs(static_cast<int>(position) + shift);
      return static_cast<std::size_t>(moved > 31 ? 62 - moved : moved);
    };
    std::vector<std::uint8_t> bytes(options.shape.size());
    dataset->copy_image(index, bytes);
    std::vector<float> pixels(bytes.size());
    for (std::size_t row = 0; row < 32; ++row)
      for (std::size_t column = 0; column < 32; ++column)
        for (std::size_t k = 0; k < 3; ++k) {
          const std::size_t source = reflected(from_the_right ? 31 - column : column);
          pixels[(row * 32 + column) * 3 + k] = static_cast<float>(
              (bytes[(reflected(row) * 32 + source) * 3 + k] / 255.0 - normalization.mean[k]) /
              normalization.deviation[k]);
        }
    const nn::NoGradGuard no_grad;
    const nn::Tensor output =
        model->forward(nn::Tensor::from(*backend, {1, 32, 32, 3}, std::span<const float>(pixels)));
    const auto values = output.values<const float>();
    return std::vector<double>(values.begin(), values.end());
  };
  model->eval();
  struct Expected {
    double loss = 0;
    double top1 = 0;
  };
  const auto expected_of = [&](const std::map<int, double>& weight_of_shift, bool mirrors) {
    Expected expected;
    for (std::size_t i = 0; i < dataset->size(); ++i) {
      std::vector<double> scores(6);
      for (const auto& [shift, weight] : weight_of_shift)
        for (const bool from_the_right : {false, true}) {
          if (from_the_right && !mirrors) continue;
          const auto some = scores_of(i, from_the_right, shift);
          for (std::size_t k = 0; k < scores.size(); ++k)
            scores[k] += some[k] * (mirrors ? weight / 2 : weight);
        }
      double sum = 0;
      for (const double score : scores) sum += std::exp(score);
      expected.loss += std::log(sum) - scores[static_cast<std::size_t>(dataset->label(i))];
      const auto best = std::ranges::max_element(scores) - scores.begin();
      expected.top1 += best == dataset->label(i) ? 1 : 0;
    }
    return expected;
  };
  const std::map<ValidationViews, Expected> all{
      {ValidationViews::kSingle, expected_of({{0, 1}}, false)},
      {ValidationViews::kMirror, expected_of({{0, 1}}, true)},
      {ValidationViews::kMirrorShift, expected_of({{0, 0.5}, {-1, 0.25}, {1, 0.25}}, true)}};
  for (const int ranks : {1, 3})
    run_threads_as_ranks(ranks, [&](Communicator& world) {
      const auto own_backend = nn::make_cpu_backend();
      nn::Generator same(3);
      const auto own_model =
          make_model("small_cnn", {.num_classes = 6}, *own_backend, same, nullptr);
      const ValidationShard shard =
          scatter_validation_set(world, world.rank() == 0 ? dataset.get() : nullptr, options.shape);
      for (const auto& [views, expected] : all) {
        const ValidationSums sums =
            validate(world, *own_backend, *own_model, {options.shape, normalization, {}}, shard,
                     {.batch_size = 4, .views = views});
        EXPECT_EQ(sums.samples, 11);
        EXPECT_EQ(sums.top1, expected.top1);
        EXPECT_NEAR(sums.loss, expected.loss, 1e-4);
      }
    });
  for (const ValidationViews views : {ValidationViews::kMirror, ValidationViews::kMirrorShift})
    EXPECT_GT(std::abs(all.at(views).loss - all.at(ValidationViews::kSingle).loss), 1e-3);
}

}  // namespace
}  // namespace dlaunch
