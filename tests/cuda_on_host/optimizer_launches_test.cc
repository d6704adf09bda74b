// How many kernels, products and copies the step of an optimizer takes on CUDA: counted in a graph
// of it, which is not run.
#include <string>

#include <gtest/gtest.h>

#include "nn/cuda/cuda_backend.h"
#include "nn/models/model.h"
#include "nn/optim/make_optimizer.h"
#include "tests/cuda_on_host/queue.h"

namespace dlaunch::nn {
namespace {

std::size_t launches_of_step(const std::string& model, const OptimizerOptions& options) {
  const auto backend = make_cuda_backend();
  Generator generator(1);
  const auto network = make_model(model, {}, *backend, generator, nullptr);
  const FlatParameters flat = flatten_parameters(*network);
  const auto optimizer = make_optimizer(flat, options);
  optimizer->begin_step(0.1);
  const auto recording = backend->record([&] { optimizer->update(0, flat.values.size()); });
  return cuda_on_host::queue().captured_launches();
}

// As in configs/: before and behind the products two kernels and one, and one for everything that
// is no matrix.
MuonOptions speedrun_options() {
  return {.momentum = 0.6,
          .iterations = 3,
          .scale = MuonScale::kNormalise,
          .bf16 = true,
          .others = {.momentum = 0.9, .nesterov = true, .weight_decay = PerKind::uniform(5e-4)}};
}

TEST(OptimizerLaunches, OfMuonAreThreeProductsAnIterationForEachShapeAndFourMore) {
  EXPECT_EQ(launches_of_step("speedrun100", speedrun_options()), 3U * 3 * 8 + 4);  // 9 matrices
  EXPECT_EQ(launches_of_step("airbench94", speedrun_options()), 3U * 3 * 4 + 4);   // 6 matrices
}

TEST(OptimizerLaunches, OfSgdAndAdamAreOneWhateverDecays) {
  const WeightDecay decay = WeightDecay::weights_only(1e-4);
  EXPECT_EQ(launches_of_step("resnet20", SgdOptions{.momentum = 0.9, .weight_decay = decay}), 1U);
  EXPECT_EQ(launches_of_step("resnet20", AdamOptions{.weight_decay = decay}), 1U);
}

TEST(OptimizerLaunches, OfMoreRangesThanAListTakesAreTwo) {
  const WeightDecay decay = WeightDecay::weights_only(1e-4);  // 116 ranges
  EXPECT_EQ(launches_of_step("resnet56", SgdOptions{.momentum = 0.9, .weight_decay = decay}), 2U);
  EXPECT_EQ(launches_of_step("resnet56", AdamOptions{.weight_decay = decay}), 2U);
}

}  // namespace
}  // namespace dlaunch::nn
