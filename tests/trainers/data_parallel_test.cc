// Data-parallel training against one process that has the joined batch.
#include <random>
#include <unordered_map>

#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/core/flat_parameters.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/layers/conv2d.h"
#include "nn/layers/linear.h"
#include "nn/layers/sync_batch_norm.h"
#include "nn/optim/sgd.h"
#include "runtime/comm/counting_communicator.h"
#include "runtime/parallel/gradient_reducer.h"
#include "runtime/parallel/state_broadcast.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch {
namespace {

constexpr std::int64_t kClasses = 5, kSide = 6, kChannels = 3;
constexpr std::size_t kPixels = kSide * kSide * kChannels;

/// split[micro-batch][rank]: numbers of samples of a step.
using Split = std::vector<std::vector<std::size_t>>;

struct Case {
  std::string name;
  bool sync_batch_norm;
  std::vector<Split> splits;  // taken in turn
  int steps = 5;

  std::size_t ranks() const { return splits[0][0].size(); }
  const Split& split(int step) const {
    return splits[static_cast<std::size_t>(step) % splits.size()];
  }
};
void PrintTo(const Case& value, std::ostream* out) {
  *out << value.name;
}

struct Images {
  std::vector<float> pixels;
  std::vector<std::int32_t> labels;

  void append(const Images& other) {
    pixels.insert(pixels.end(), other.pixels.begin(), other.pixels.end());
    labels.insert(labels.end(), other.labels.begin(), other.labels.end());
  }
};

/// The share of a rank, which every rank can compute.
Images make_images(unsigned seed, int step, std::size_t micro_batch, std::size_t rank,
                   std::size_t count) {
  std::seed_seq sequence{seed, static_cast<unsigned>(step), static_cast<unsigned>(micro_batch),
                         static_cast<unsigned>(rank)};
  std::mt19937 random(sequence);
  std::normal_distribution<float> normal;
  Images images;
  for (std::size_t i = 0; i < count * kPixels; ++i) images.pixels.push_back(normal(random));
  for (std::size_t i = 0; i < count; ++i)
    images.labels.push_back(static_cast<std::int32_t>(random() % kClasses));
  return images;
}

/// conv, (batch norm), CELU, flatten, linear; small enough to be quick. Smooth, because a ReLU's
/// input that is zero but for rounding may pass on one number of ranks and not on another.
class Network : public nn::Module {
 public:
  Network(nn::Backend& backend, nn::Generator& generator, std::unique_ptr<nn::Module> norm)
      : conv_(
            add_module("conv", std::make_unique<nn::Conv2d>(backend, kChannels, 4, 3, generator))),
        fc_(add_module("fc", std::make_unique<nn::Linear>(backend, 4 * (kSide - 2) * (kSide - 2),
                                                          kClasses, generator))) {
    if (norm != nullptr) norm_ = &add_module("norm", std::move(norm));
  }
  nn::Tensor forward(nn::Tensor input) override {
    nn::Tensor x = conv_.forward(std::move(input));
    if (norm_ != nullptr) x = norm_->forward(std::move(x));
    return fc_.forward(nn::flatten(nn::celu(std::move(x), 0.3F)));
  }
  std::string kind() const override { return "Network"; }
  nn::Shape output_shape(const nn::Shape& input) const override { return {input[0], kClasses}; }

 private:
  nn::Conv2d& conv_;
  nn::Linear& fc_;
  nn::Module* norm_ = nullptr;
};

nn::Tensor summed_loss(Network& network, nn::Backend& backend, const Images& images) {
  const nn::Shape shape{static_cast<std::int64_t>(images.labels.size()), kSide, kSide, kChannels};
  return cross_entropy(
      network.forward(nn::Tensor::from(backend, shape, std::span<const float>(images.pixels))),
      std::span<const std::int32_t>(images.labels));
}

std::vector<float> values_of(const nn::Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

/// Parameters after training on the joined batches, written without the engine: gradients of sums,
/// divided by the number of samples.
std::vector<float> train_alone(const Case& how, unsigned seed) {
  const auto backend = nn::make_cpu_backend();
  nn::Generator generator(seed);
  Network network(*backend, generator,
                  how.sync_batch_norm ? std::make_unique<nn::BatchNorm>(*backend, 4) : nullptr);
  nn::FlatParameters parameters = flatten_parameters(network);
  nn::Sgd optimizer(parameters, {.momentum = 0.9});
  for (int step = 0; step < how.steps; ++step) {
    parameters.zero_gradients();
    std::size_t samples = 0;
    const Split& split = how.split(step);
    for (std::size_t micro = 0; micro < split.size(); ++micro) {
      Images joined;
      for (std::size_t rank = 0; rank < split[micro].size(); ++rank)
        joined.append(make_images(seed, step, micro, rank, split[micro][rank]));
      samples += joined.labels.size();
      nn::backward(summed_loss(network, *backend, joined));
    }
    for (float& gradient : parameters.gradients.values<float>())
      gradient /= static_cast<float>(samples);
    optimizer.step(0.1);
  }
  return values_of(parameters.values);
}

/// The same on one of several ranks, through the engine.
std::vector<float> train_together(const Case& how, unsigned seed, Communicator& world) {
  const auto backend = nn::make_cpu_backend();
  const auto rank = static_cast<std::size_t>(world.rank());
  nn::Generator generator(seed + static_cast<unsigned>(rank));  // only rank 0's weights count
  Network network(
      *backend, generator,
      how.sync_batch_norm ? std::make_unique<nn::SyncBatchNorm>(*backend, 4, world) : nullptr);
  nn::FlatParameters parameters = flatten_parameters(network, &world);
  EXPECT_TRUE(broadcast_state(world, std::vector<Buffer>{parameters.values.values<float>()}).ok());
  nn::Sgd optimizer(parameters, {.momentum = 0.9});

  std::vector<GradientRange> ranges;
  std::unordered_map<const float*, std::size_t> index;
  for (const nn::FlatView& view : parameters.views) {
    index[view.parameter.data<const float>()] = ranges.size();
    ranges.push_back({static_cast<std::size_t>(view.offset), static_cast<std::size_t>(view.count)});
  }
  CountingCommunicator counted(world);
  GradientReducer reducer(counted, parameters.gradients.values<float>(), ranges,
                          {.limits = {.bytes = 512, .first_bytes = 64}});
  for (int step = 0; step < how.steps; ++step) {
    parameters.zero_gradients();
    counted.reset();
    const std::size_t buckets_before = reducer.buckets().size();
    const Split& split = how.split(step);
    for (std::size_t micro = 0; micro < split.size(); ++micro) {
      EXPECT_EQ(counted.collectives(), 0U) << "gradients were sent before the last micro-batch";
      const Images images = make_images(seed, step, micro, rank, split[micro][rank]);
      const nn::Tensor loss = summed_loss(network, *backend, images);
      reducer.begin(micro + 1 == split.size(),
                    {static_cast<double>(images.labels.size()), loss.item(), 0});
      nn::backward(loss, {.on_gradient_ready = [&](const nn::Tensor& leaf) {
                     reducer.mark_ready(index.at(leaf.data<const float>()));
                   }});
    }
    optimizer.begin_step(0.1);
    EXPECT_TRUE(reducer
                    .finish([&](FlatSpan span, double scale) {
                      for (float& gradient :
                           parameters.gradients.values<float>().subspan(span.begin, span.size()))
                        gradient = static_cast<float>(gradient * scale);
                      optimizer.update(static_cast<std::int64_t>(span.begin),
                                       static_cast<std::int64_t>(span.end));
                    })
                    .ok());
    // One for the totals, in the first step two more: the order, and what is unused.
    const std::size_t once = step == 0 ? 2 : 0;
    EXPECT_EQ(counted.collectives(), world.size() == 1 ? once / 2 : buckets_before + 1 + once);
  }
  return values_of(parameters.values);
}

void expect_same_parameters(const Case& how, unsigned seed) {
  const std::vector<float> expected = train_alone(how, seed);
  testing::run_threads_as_ranks(static_cast<int>(how.ranks()), [&](Communicator& world) {
    const std::vector<float> actual = train_together(how, seed, world);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], how.steps > 5 ? 1e-4 : 1e-5) << "parameter " << i;
  });
}

class DataParallel : public ::testing::TestWithParam<Case> {};

TEST_P(DataParallel, EqualsOneProcessWithTheJoinedBatch) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  expect_same_parameters(GetParam(), seed);
}

/// Batches of any size, also none, on ranks that run out of data at different times; only one of
/// them surely has some to the end.
Case random_case(std::size_t ranks, bool sync_batch_norm, std::mt19937& random) {
  const auto below = [&](std::size_t limit) { return random() % limit; };
  constexpr std::size_t kSteps = 5;
  const std::size_t longest = below(ranks);
  std::vector<std::size_t> steps_with_data(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    steps_with_data[rank] = rank == longest ? kSteps : below(kSteps + 1);
  Case how{"random", sync_batch_norm, std::vector<Split>(kSteps), kSteps};
  for (std::size_t step = 0; step < kSteps; ++step) {
    how.splits[step].resize(1 + below(3), std::vector<std::size_t>(ranks));
    for (std::vector<std::size_t>& samples : how.splits[step])
      for (std::size_t rank = 0; rank < ranks; ++rank)
        samples[rank] = step >= steps_with_data[rank] ? 0 : below(6) + (rank == longest ? 1 : 0);
  }
  return how;
}

TEST(DataParallelOnAnySplit, EqualsOneProcessWithTheJoinedBatch) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (std::size_t ranks = 1; ranks <= 5; ++ranks)
    for (const bool sync_batch_norm : {false, true}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks");
      expect_same_parameters(random_case(ranks, sync_batch_norm, random), seed);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Splits, DataParallel,
    ::testing::Values(Case{"one_rank", true, {{{9}, {4}}}}, Case{"two_ranks", false, {{{8, 8}}}},
                      Case{"two_ranks_sync", true, {{{8, 8}}}},
                      Case{"fifty_steps_of_two_ranks", true, {{{8, 8}}}, 50},
                      Case{"fifty_steps_of_four_ranks", true, {{{4, 4, 4, 4}}}, 50},
                      Case{"accumulating", false, {{{4, 4}, {4, 4}, {4, 4}}}},
                      Case{"accumulating_sync", true, {{{4, 4}, {4, 4}}}},
                      Case{"unequal", false, {{{7, 2, 1}}}},
                      Case{"unequal_sync", true, {{{7, 2, 1}, {1, 3, 5}}}},
                      Case{"empty", false, {{{5, 0, 6}, {0, 4, 0}}}},
                      Case{"empty_sync", true, {{{5, 0, 6}, {0, 4, 0}}}}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace dlaunch
