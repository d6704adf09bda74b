#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/core/error.h"
#include "nn/data/augment_image.h"
#include "nn/data/batch_loader.h"
#include "nn/data/mix.h"
#include "nn/data/streams.h"
#include "nn/data/synthetic.h"
#include "nn/data/transform.h"
#include "nn/data/worker_pool.h"

namespace dlaunch::nn {
namespace {

constexpr ImageShape kShape{6, 7, 2};
const Normalization kNormalization{{0.5, 0.25}, {0.5, 2.0}};

std::vector<std::uint8_t> random_image() {
  std::mt19937 random(std::random_device{}());
  std::vector<std::uint8_t> image(kShape.size());
  for (auto& byte : image) byte = static_cast<std::uint8_t>(random() >> 24);
  return image;
}

float normalised(std::uint8_t byte, std::size_t channel) {
  return static_cast<float>((byte / 255.0 - kNormalization.mean[channel]) /
                            kNormalization.deviation[channel]);
}

std::vector<float> augmented(const std::vector<std::uint8_t>& image, const Augmentation& how,
                             std::uint64_t stream) {
  std::vector<float> out(kShape.size());
  const AugmentationPlan plan = ImageTransform(kShape, kNormalization, how).plan(0, 1000);
  augment_image(plan, draw_image(plan, {.seed = 5, .sample = stream}), image, out);
  return out;
}

/// The augmentation of `image` written out plainly for one choice of offsets and flip.
std::vector<float> expected_crop(const std::vector<std::uint8_t>& image, int dy, int dx, bool flip,
                                 PadMode mode) {
  const auto height = static_cast<int>(kShape.height), width = static_cast<int>(kShape.width);
  std::vector<float> out;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (std::size_t c = 0; c < kShape.channels; ++c) {
        int from_y = y + dy, from_x = (flip ? width - 1 - x : x) + dx;
        bool inside = true;
        if (mode == PadMode::kReflect) {
          if (from_y < 0) from_y = -from_y;
          if (from_y >= height) from_y = height - 1 - (from_y - (height - 1));
          if (from_x < 0) from_x = -from_x;
          if (from_x >= width) from_x = width - 1 - (from_x - (width - 1));
        } else {
          inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
        }
        const std::size_t at =
            static_cast<std::size_t>(from_y * width + from_x) * kShape.channels + c;
        out.push_back(normalised(inside ? image[at] : 0, c));
      }
  return out;
}

bool nearly_equal(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return std::abs(x - y) < 1e-6F; });
}

TEST(ImageTransform, NormalisesEachChannel) {
  const auto image = random_image();
  std::vector<float> out(kShape.size());
  ImageTransform(kShape, kNormalization, {}).normalise(image, out);
  for (std::size_t i = 0; i < image.size(); ++i)
    EXPECT_NEAR(out[i], normalised(image[i], i % 2), 1e-6) << i;
  EXPECT_EQ(augmented(image, {}, 1), out);
}

TEST(ImageTransform, CropsAndFlipsInEveryPossibleWayAndNoOther) {
  const auto image = random_image();
  for (const PadMode mode : {PadMode::kZero, PadMode::kReflect}) {
    std::vector<std::vector<float>> possible;
    for (int dy = -2; dy <= 2; ++dy)
      for (int dx = -2; dx <= 2; ++dx)
        for (const bool flip : {false, true})
          possible.push_back(expected_crop(image, dy, dx, flip, mode));
    std::vector<int> seen(possible.size());
    for (std::uint64_t stream = 0; stream < 1000; ++stream) {
      const auto out = augmented(
          image, {.crop_padding = 2, .pad_mode = mode, .flip = FlipMode::kRandom}, stream);
      const auto found = std::find_if(possible.begin(), possible.end(),
                                      [&](const auto& one) { return nearly_equal(one, out); });
      ASSERT_NE(found, possible.end()) << "stream " << stream;
      ++seen[static_cast<std::size_t>(found - possible.begin())];
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 0), 0);  // each is expected 20 times
  }
}

TEST(ImageTransform, CutsASquareOutAndLeavesTheRest) {
  const std::vector<std::uint8_t> image(kShape.size(), 255);
  std::size_t largest = 0;
  for (std::uint64_t stream = 0; stream < 100; ++stream) {
    const auto out = augmented(image, {.cutout = 3}, stream);
    const auto holes = static_cast<std::size_t>(std::count(out.begin(), out.end(), 0.0F));
    EXPECT_GE(holes, 2U * 2 * 2);  // the centre is inside: at least a corner of the square
    EXPECT_LE(holes, 3U * 3 * 2);
    largest = std::max(largest, holes);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float whole = i % 2 == 0 ? 1.0F : 0.375F;
      EXPECT_NEAR(out[i], out[i] == 0 ? 0.0F : whole, 1e-6);
    }
  }
  EXPECT_EQ(largest, 18U);
}

TEST(ImageTransform, CutsOutAroundEveryPixel) {
  const AugmentationPlan plan = ImageTransform(kShape, kNormalization, {.cutout = 3}).plan(0, 500);
  std::set<std::pair<int, int>> centres;
  for (std::uint64_t sample = 0; sample < 1000; ++sample) {
    const ImageDraw draw = draw_image(plan, {.seed = 5, .sample = sample});
    EXPECT_GE(draw.cut_y, 0);
    EXPECT_LT(draw.cut_y, 6);
    EXPECT_GE(draw.cut_x, 0);
    EXPECT_LT(draw.cut_x, 7);
    centres.emplace(draw.cut_y, draw.cut_x);
  }
  EXPECT_EQ(centres.size(), 6U * 7);
}

TEST(ImageTransform, RefusesWhatDoesNotFitTheImage) {
  EXPECT_THROW(ImageTransform(kShape, {{0.5}, {0.5}}, {}), Error);
  EXPECT_THROW(ImageTransform(kShape, kNormalization, {.crop_padding = 6}), Error);
}

class BatchLoaderTest : public ::testing::Test {
 protected:
  ImageTransform transform() const {
    return {options_.shape,
            {{0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}},
            {.crop_padding = 2, .flip = FlipMode::kRandom}};
  }
  SyntheticOptions options_{.classes = 7, .train_size = 53, .shape = {8, 8, 3}};
  std::unique_ptr<Dataset> dataset_ = make_synthetic(options_, Split::kTrain);
};

TEST_F(BatchLoaderTest, GivesTheSamplesOfItsRankInOrderEpochAfterEpoch) {
  const StepPlan plan(53, 16, 2, 3);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    BatchLoader loader(*dataset_, transform(), {.plan = plan, .rank = rank, .seed = 3, .depth = 2});
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      const auto order = epoch_order(53, 3, epoch);
      for (std::size_t step = 0; step < plan.steps(); ++step)
        for (std::size_t index = 0; index < plan.micro_batches(step); ++index) {
          const MicroBatch& batch = loader.next();
          EXPECT_EQ(batch.epoch, epoch);
          EXPECT_EQ(batch.step, step);
          EXPECT_EQ(batch.index, index);
          const SampleRange range = plan.micro_batch(step, index, rank);
          ASSERT_EQ(batch.size, range.size());
          ASSERT_EQ(batch.images.size(), range.size() * options_.shape.size());
          for (std::size_t i = 0; i < batch.size; ++i)
            EXPECT_EQ(batch.labels[i], dataset_->label(order[range.begin + i]));
        }
    }
  }
}

TEST_F(BatchLoaderTest, AugmentsASampleAlikeOnAnyRank) {
  // Of the first epoch, sample by sample, whoever loads it.
  const auto load_all = [&](std::size_t ranks) {
    const StepPlan plan(53, 16, 1, ranks);
    const auto order = epoch_order(53, 3, 0);
    std::vector<std::vector<float>> images(53);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      BatchLoader loader(*dataset_, transform(), {.plan = plan, .rank = rank, .seed = 3});
      for (std::size_t step = 0; step < plan.steps(); ++step) {
        const MicroBatch& batch = loader.next();
        const SampleRange range = plan.micro_batch(step, 0, rank);
        const auto size = static_cast<std::ptrdiff_t>(options_.shape.size());
        for (std::size_t i = 0; i < range.size(); ++i) {
          const auto begin = batch.images.begin() + static_cast<std::ptrdiff_t>(i) * size;
          images[order[range.begin + i]] = std::vector<float>(begin, begin + size);
        }
      }
    }
    return images;
  };
  EXPECT_EQ(load_all(1), load_all(3));
}

// One place for a batch, and another one for the next.
TEST_F(BatchLoaderTest, CutsBatchesOutWhereTheirStepSays) {
  const ImageTransform cropping(options_.shape, {{0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}},
                                {.crop_padding = 3, .crop_batch = true});
  const StepPlan plan(53, 8, 1, 1);
  const AugmentationPlan how = cropping.plan(0, plan.samples());
  BatchLoader loader(*dataset_, cropping, {.plan = plan, .seed = 3});
  std::set<std::pair<int, int>> places;
  for (std::size_t i = 0; i < 2 * plan.steps(); ++i) {
    const MicroBatch& batch = loader.next();
    const ImagePlace first = first_place_of(batch, 3);
    EXPECT_EQ(first.seed, 3U);
    EXPECT_EQ(first.epoch, i / plan.steps());
    EXPECT_EQ(first.step, i % plan.steps());
    EXPECT_EQ(first.place, 8 * first.step);
    const ImageDraw draw = draw_image(how, {.seed = 3,
                                            .epoch = i / plan.steps(),
                                            .step = i % plan.steps(),
                                            .sample = batch.samples[0],
                                            .place = batch.first_place});
    places.emplace(draw.shift_y, draw.shift_x);
    std::vector<std::uint8_t> pixels(options_.shape.size());
    dataset_->copy_image(batch.samples[0], pixels);
    std::vector<float> expected(pixels.size());
    augment_image(how, draw, pixels, expected);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), batch.images.begin())) << i;
  }
  EXPECT_GT(places.size(), 5U);  // of 49, in 14 steps
}

TEST_F(BatchLoaderTest, MixesImagesAndLabelsAlikeOnAnyNumberOfRanks) {
  // Of the first two steps: the mixed images, and the shares of all labels, by place in the order.
  struct Mixed {
    std::vector<std::vector<float>> images;
    std::vector<std::array<float, 3>> labels;
  };
  const auto load_all = [&](std::size_t ranks, MixKind kind) {
    const StepPlan plan(53, 16, 2, ranks);
    Mixed mixed{std::vector<std::vector<float>>(32), std::vector<std::array<float, 3>>(32)};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      BatchLoader loader(*dataset_, transform(),
                         {.plan = plan, .rank = rank, .seed = 3, .mix = {.kind = kind}});
      for (std::size_t step = 0; step < 2; ++step)
        for (std::size_t index = 0; index < 2; ++index) {
          const MicroBatch& batch = loader.next();
          const SampleRange range = plan.micro_batch(step, index, rank);
          const auto size = static_cast<std::ptrdiff_t>(options_.shape.size());
          EXPECT_EQ(batch.partner_labels.size(), batch.size);
          for (std::size_t i = 0; i < range.size(); ++i) {
            const auto begin = batch.images.begin() + static_cast<std::ptrdiff_t>(i) * size;
            mixed.images[range.begin + i] = {begin, begin + size};
            mixed.labels[range.begin + i] = {static_cast<float>(batch.labels[i]),
                                             static_cast<float>(batch.partner_labels[i]),
                                             batch.own_share};
          }
        }
    }
    return mixed;
  };
  for (const MixKind kind : {MixKind::kMixup, MixKind::kCutmix, MixKind::kEither}) {
    const Mixed alone = load_all(1, kind);
    const Mixed together = load_all(3, kind);
    EXPECT_EQ(alone.images, together.images);
    EXPECT_EQ(alone.labels, together.labels);
    EXPECT_EQ(alone.labels[0][0], alone.labels[7][1]);  // first and last of the micro-batch
  }
}

TEST_F(BatchLoaderTest, MixesEveryMicroBatchInItsOwnShares) {
  BatchLoader loader(*dataset_, transform(),
                     {.plan = StepPlan(53, 16, 2, 1), .seed = 3, .mix = {.kind = MixKind::kMixup}});
  std::set<float> shares;
  for (int i = 0; i < 16; ++i) shares.insert(loader.next().own_share);
  EXPECT_EQ(shares.size(), 16U) << "two in each of four steps, in two epochs";
}

TEST_F(BatchLoaderTest, BeginsInTheMiddleOfAnEpoch) {
  const StepPlan plan(53, 16, 2, 1);
  BatchLoader whole(*dataset_, transform(), {.plan = plan, .seed = 3});
  BatchLoader rest(*dataset_, transform(), {.plan = plan, .seed = 3, .first_step = 2});
  for (int i = 0; i < 4; ++i) whole.next();
  for (int i = 0; i < 12; ++i) {
    const MicroBatch& expected = whole.next();
    const MicroBatch& actual = rest.next();
    EXPECT_EQ(actual.epoch, expected.epoch);
    EXPECT_EQ(actual.step, expected.step);
    EXPECT_EQ(actual.images, expected.images);
  }
}

TEST_F(BatchLoaderTest, MakesTheSameBitsWithAnyNumberOfWorkers) {
  const auto load_all = [&](std::size_t workers) {
    BatchLoader loader(*dataset_,
                       {options_.shape,
                        {{0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}},
                        {.crop_padding = 2, .flip = FlipMode::kRandom, .cutout = 3}},
                       {.plan = StepPlan(53, 16, 2, 1),
                        .seed = 3,
                        .workers = workers,
                        .mix = {.kind = MixKind::kEither},
                        .resize = {{.until_epochs = 1, .side = 6}}});
    std::vector<std::vector<float>> images;
    for (int i = 0; i < 16; ++i) images.push_back(loader.next().images);
    return images;
  };
  const auto alone = load_all(1);
  for (const std::size_t workers : {2U, 3U, 20U}) EXPECT_EQ(load_all(workers), alone) << workers;
}

TEST(Mix, SharesAreOfTheImageAndAverageOneHalf) {
  constexpr ImageShape kSquare{32, 32, 1};
  double sum = 0;
  constexpr int kDraws = 2000;
  for (std::uint64_t stream = 0; stream < kDraws; ++stream) {
    const Mix mixup =
        draw_mix({.kind = MixKind::kMixup, .alpha = 0.4}, kSquare, Generator(1, stream));
    EXPECT_FALSE(mixup.rectangle);
    EXPECT_GE(mixup.own_share, 0);
    EXPECT_LE(mixup.own_share, 1);
    sum += static_cast<double>(mixup.own_share);
    const Mix cutmix = draw_mix({.kind = MixKind::kCutmix}, kSquare, Generator(1, stream));
    std::vector<float> image(kSquare.size(), 1), partner(kSquare.size(), 0);
    apply_mix(cutmix, kSquare, partner, image);
    EXPECT_EQ(std::count(image.begin(), image.end(), 1.0F),
              std::lround(static_cast<double>(cutmix.own_share) * 1024));
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.05);  // the deviation of the mean is 0.008
  std::vector<float> image{1, 2}, partner{3, 6};
  apply_mix({.own_share = 0.75F}, {1, 2, 1}, partner, image);
  EXPECT_EQ(image, (std::vector<float>{1.5F, 3}));
}

TEST(Mix, RectanglesReachAsFarToBothSidesOfAPixel) {
  constexpr ImageShape kSquare{32, 32, 1};
  int whole = 0;
  for (std::uint64_t stream = 0; stream < 500; ++stream) {
    const Mix mix = draw_mix({.kind = MixKind::kCutmix}, kSquare, Generator(1, stream));
    if (mix.top == 0 || mix.bottom == 32 || mix.left == 0 || mix.right == 32) continue;
    ++whole;
    EXPECT_EQ((mix.bottom - mix.top) % 2, 1) << stream;
    EXPECT_EQ(mix.bottom - mix.top, mix.right - mix.left) << stream;
  }
  EXPECT_GT(whole, 20);
}

/// However fast they are used.
TEST_F(BatchLoaderTest, RepeatsResidentBatchesInTheirOrder) {
  BatchLoader whole(*dataset_, transform(), {.plan = StepPlan(53, 16, 2, 1), .seed = 3});
  std::vector<std::vector<std::uint32_t>> first;
  for (int i = 0; i < 3; ++i) first.push_back(whole.next().samples);
  BatchLoader resident(*dataset_, transform(),
                       {.plan = StepPlan(53, 16, 2, 1), .seed = 3, .depth = 2, .resident = true});
  for (std::size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(resident.next().samples, first[i % 3]) << i;
    if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST_F(BatchLoaderTest, EndsAtOnceWhileBatchesAreWaiting) {
  for (int i = 0; i < 20; ++i) {
    BatchLoader loader(*dataset_, transform(), {.plan = StepPlan(53, 16, 2, 1)});
    if (i % 2 == 1) loader.next();
  }
}

/// Has images, except for some.
class DamagedSet : public Dataset {
 public:
  explicit DamagedSet(const Dataset& whole) : whole_(whole) {}
  std::size_t size() const override { return whole_.size(); }
  ImageShape image_shape() const override { return whole_.image_shape(); }
  const std::vector<std::string>& class_names() const override { return whole_.class_names(); }
  std::int32_t label(std::size_t index) const override { return whole_.label(index); }
  void copy_image(std::size_t index, std::span<std::uint8_t> image) const override {
    if (index % 3 == 2) throw DataError("image " + std::to_string(index) + " is damaged");
    whole_.copy_image(index, image);
  }
  std::string fingerprint() const override { return "damaged"; }

 private:
  const Dataset& whole_;
};

TEST_F(BatchLoaderTest, PassesOnTheFirstThingThatItsThreadsMet) {
  const DamagedSet damaged(*dataset_);
  const auto order = epoch_order(53, 3, 0);
  const auto first =
      std::ranges::find_if(order, [](std::uint32_t sample) { return sample % 3 == 2; });
  const std::string what = "image " + std::to_string(*first) + " is damaged";
  for (const std::size_t workers : {1U, 3U})
    for (int i = 0; i < 20; ++i) {
      BatchLoader loader(damaged, transform(),
                         {.plan = StepPlan(53, 16, 1, 1), .seed = 3, .workers = workers});
      const auto next = [&] { loader.next(); };
      EXPECT_THAT(next, ::testing::ThrowsMessage<DataError>(what));
      EXPECT_THROW(next(), DataError);
    }
}

// OpenMP binds the thread that it starts on where it is told to: see the ctest entry of that name.
TEST(WorkerPool, RunsWhereverTheProcessMay) {
  const auto may_use = [](pid_t who) {
    cpu_set_t set;
    CPU_ZERO(&set);
    return ::sched_getaffinity(who, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  };
  constexpr std::size_t kWorkers = 3;
  std::vector<int> cores(kWorkers);
  std::atomic<std::size_t> begun{0};
  WorkerPool pool(kWorkers);
  pool.run(kWorkers, [&](std::size_t worker, std::size_t /*index*/) {
    cores[worker] = may_use(0);
    ++begun;
    while (begun < kWorkers) std::this_thread::yield();  // so each has one
  });
  const int all = may_use(::getppid());
  EXPECT_EQ(cores[1], all);
  EXPECT_EQ(cores[2], all);
}

TEST(WorkerPool, GivesEachIndexToOneWorkerLoopAfterLoop) {
  for (const std::size_t workers : {1U, 2U, 5U}) {
    WorkerPool pool(workers);
    EXPECT_EQ(pool.size(), workers);
    for (const std::size_t count : {0U, 1U, 3U, 100U, 2U}) {
      std::vector<std::atomic<int>> done(count);
      std::vector<std::atomic<int>> busy(workers);
      pool.run(count, [&](std::size_t worker, std::size_t index) {
        EXPECT_EQ(busy.at(worker)++, 0);  // nobody else has its number
        ++done.at(index);
        --busy.at(worker);
      });
      for (const auto& one : done) EXPECT_EQ(one.load(), 1);
    }
    const auto fails = [&] {
      pool.run(50, [](std::size_t, std::size_t index) {
        if (index % 7 == 6) throw DataError(std::to_string(index));
      });
    };
    for (int i = 0; i < 20; ++i) EXPECT_THAT(fails, ::testing::ThrowsMessage<DataError>("6"));
    std::atomic<int> after = 0;
    pool.run(50, [&](std::size_t, std::size_t) { ++after; });
    EXPECT_EQ(after.load(), 50);
  }
}

}  // namespace
}  // namespace dlaunch::nn
