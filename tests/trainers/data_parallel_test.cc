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

constexpr int kSteps = 5;
constexpr std::int64_t kClasses = 5, kSide = 6, kChannels = 3;
constexpr std::size_t kPixels = kSide * kSide * kChannels;

struct Case {
  std::string name;
  bool sync_batch_norm;
  /// samples[micro-batch][rank] of every step.
  std::vector<std::vector<std::size_t>> samples;
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

/// conv, (batch norm), flatten, linear; small enough to be quick.
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
    return fc_.forward(nn::flatten(nn::relu(std::move(x))));
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

std::vector<float> copy_of(const nn::Tensor& tensor) {
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
  for (int step = 0; step < kSteps; ++step) {
    parameters.zero_gradients();
    std::size_t samples = 0;
    for (std::size_t micro = 0; micro < how.samples.size(); ++micro) {
      Images joined;
      for (std::size_t rank = 0; rank < how.samples[micro].size(); ++rank)
        joined.append(make_images(seed, step, micro, rank, how.samples[micro][rank]));
      samples += joined.labels.size();
      nn::backward(summed_loss(network, *backend, joined));
    }
    for (float& gradient : parameters.gradients.values<float>())
      gradient /= static_cast<float>(samples);
    optimizer.step(0.1);
  }
  return copy_of(parameters.values);
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
  for (int step = 0; step < kSteps; ++step) {
    parameters.zero_gradients();
    counted.reset();
    const std::size_t buckets_before = reducer.buckets().size();
    for (std::size_t micro = 0; micro < how.samples.size(); ++micro) {
      EXPECT_EQ(counted.collectives(), 0U) << "gradients were sent before the last micro-batch";
      const Images images = make_images(seed, step, micro, rank, how.samples[micro][rank]);
      const nn::Tensor loss = summed_loss(network, *backend, images);
      reducer.begin(micro + 1 == how.samples.size(),
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
  return copy_of(parameters.values);
}

class DataParallel : public ::testing::TestWithParam<Case> {};

TEST_P(DataParallel, EqualsOneProcessWithTheJoinedBatch) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Case& how = GetParam();
  const std::vector<float> expected = train_alone(how, seed);
  testing::run_threads_as_ranks(static_cast<int>(how.samples[0].size()), [&](Communicator& world) {
    const std::vector<float> actual = train_together(how, seed, world);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], 1e-5) << "parameter " << i;
  });
}

INSTANTIATE_TEST_SUITE_P(Splits, DataParallel,
                         ::testing::Values(Case{"one_rank", true, {{9}, {4}}},
                                           Case{"two_ranks", false, {{8, 8}}},
                                           Case{"two_ranks_sync", true, {{8, 8}}},
                                           Case{"accumulating", false, {{4, 4}, {4, 4}, {4, 4}}},
                                           Case{"accumulating_sync", true, {{4, 4}, {4, 4}}},
                                           Case{"unequal", false, {{7, 2, 1}}},
                                           Case{"unequal_sync", true, {{7, 2, 1}, {1, 3, 5}}},
                                           Case{"empty", false, {{5, 0, 6}, {0, 4, 0}}},
                                           Case{"empty_sync", true, {{5, 0, 6}, {0, 4, 0}}}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace dlaunch
