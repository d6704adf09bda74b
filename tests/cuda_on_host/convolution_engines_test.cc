// Which of cuDNN's engines convolutions take.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include "nn/core/autograd.h"
#include "nn/core/error.h"
#include "nn/core/ops.h"
#include "nn/core/random.h"
#include "nn/cuda/cuda_backend.h"
#include "tests/cuda_on_host/cudnn_engines.h"
#include "tests/cuda_on_host/host_pages.h"

namespace dlaunch::nn {
namespace {

using cuda_on_host::engine_control;
using cuda_on_host::EngineNumber;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointwise;
using ::testing::SizeIs;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

struct Passes {
  std::vector<float> y, dx, dw;
  friend bool operator==(const Passes&, const Passes&) = default;
};

class ConvolutionEngines : public ::testing::Test {
 protected:
  ConvolutionEngines() { engine_control() = {}; }
  ~ConvolutionEngines() override {
    cuda_on_host::device_pages().set_limit(std::numeric_limits<std::size_t>::max());
  }

  std::vector<float> random_values(const Shape& shape) {
    std::vector<float> values(static_cast<std::size_t>(shape.size()));
    generator_.fill_normal(values, 0, 1);
    return values;
  }

  /// All passes of a convolution, on the same values in every call.
  Passes run(const CudaOptions& options, DType dtype = DType::kF32, std::int64_t kernel = 3,
             std::int64_t stride = 1) {
    const auto backend = make_cuda_backend(options);
    const Conv2dOptions windows{.stride = stride, .padding = 1};
    const auto [in, out] = channels_;
    const Shape images{images_[0], images_[1], images_[2], in};
    const Shape weight_shape{out, kernel, 3, in};
    const Shape output = conv2d_geometry(images, weight_shape, windows).output();
    if (x_.empty()) {
      x_ = random_values(images);
      weights_ = random_values(weight_shape);
      dy_ = random_values(output);
    }
    Tensor x = Tensor::from<float>(*backend, images, x_);
    Tensor weights = Tensor::from<float>(*backend, weight_shape, weights_);
    x.set_requires_grad(true);
    weights.set_requires_grad(true);
    const Tensor y = convert(conv2d(convert(x, dtype), weights, Tensor(), windows), DType::kF32);
    backward(y, {.gradient = Tensor::from<float>(*backend, output, dy_)});
    return {y.host_values<float>(), x.grad().host_values<float>(),
            weights.grad().host_values<float>()};
  }

  const Shape images_{2, 9, 7, 6};
  Generator generator_{std::random_device{}()};
  std::pair<std::int64_t, std::int64_t> channels_{6, 4};  // in, out
  std::vector<float> x_, weights_, dy_;
};

TEST_F(ConvolutionEngines, AreTheFirstThatKeepWhatIsPromisedAndAreReadyAtOnce) {
  run({});
  EXPECT_THAT(engine_control().executed,
              ElementsAre(EngineNumber::kPlain, EngineNumber::kPlain, EngineNumber::kPlain));
  EXPECT_THAT(engine_control().planned, Not(Contains(EngineNumber::kCompiled)));
}

TEST_F(ConvolutionEngines, AreTheSameIfOneWasAskedForBefore) {
  const Passes alone = run({});
  const std::vector<EngineNumber> planned = engine_control().planned;
  engine_control() = {};
  EXPECT_EQ(run({.ask_early = true}), alone);
  ASSERT_THAT(engine_control().planned, SizeIs(Gt(planned.size())));
  EXPECT_TRUE(std::equal(planned.rbegin(), planned.rend(), engine_control().planned.rbegin()));
  EXPECT_THAT(engine_control().executed, SizeIs(3));
  // A backend that goes before it has an answer, or before anybody wants it.
  (void)make_cuda_backend({.ask_early = true});
}

TEST_F(ConvolutionEngines, MayMultiplyF32InTF32IfThatIsAllowed) {
  const Passes exact = run({});
  engine_control() = {};
  const Passes rounded = run({.tf32 = true});
  EXPECT_THAT(engine_control().executed, Each(EngineNumber::kTensorCores));
  // Sums of at most 126 products, each with an error of 2^-11 of either operand.
  constexpr float kTolerance = 0.1F;
  EXPECT_NE(rounded, exact);
  EXPECT_THAT(rounded.y, Pointwise(FloatNear(kTolerance), exact.y));
  EXPECT_THAT(rounded.dx, Pointwise(FloatNear(kTolerance), exact.dx));
  EXPECT_THAT(rounded.dw, Pointwise(FloatNear(kTolerance), exact.dw));
}

TEST_F(ConvolutionEngines, MultiplyHalvesOnTensorCores) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) run({}, dtype);
  EXPECT_THAT(engine_control().executed, Each(EngineNumber::kTensorCores));
  EXPECT_THAT(engine_control().executed, SizeIs(6));
}

TEST_F(ConvolutionEngines, OfHalvesAreOnTensorCoresIfTheseMultiplySoManyChannelsAtATime) {
  run({}, DType::kBF16, 3, cuda_on_host::kStrideOfPlain);
  EXPECT_THAT(engine_control().executed, Each(EngineNumber::kOtherPlain)) << "6 and 4 channels";
  for (const std::int64_t stride :
       {cuda_on_host::kStrideOfPlain, cuda_on_host::kStrideOfFallback}) {
    engine_control() = {};
    x_.clear();
    channels_ = {8, 16};
    run({}, DType::kBF16, 3, stride);
    EXPECT_THAT(engine_control().executed,
                Each(stride == cuda_on_host::kStrideOfPlain ? EngineNumber::kTensorCores
                                                            : EngineNumber::kFallback));
  }
}

TEST_F(ConvolutionEngines, AreThoseThatAreThereAtAllIfNoOtherIs) {
  run({}, DType::kF32, 3, cuda_on_host::kStrideOfFallback);
  EXPECT_THAT(engine_control().executed, Each(EngineNumber::kFallback));
  engine_control() = {};
  x_.clear();
  run({}, DType::kF32, cuda_on_host::kHeightOfCompiled);
  EXPECT_THAT(engine_control().executed, Each(EngineNumber::kCompiled));
  engine_control() = {};
  x_.clear();
  run({.autotune = true}, DType::kF32, cuda_on_host::kHeightOfLarge);
  EXPECT_THAT(engine_control().executed, Each(EngineNumber::kLarge));
}

TEST_F(ConvolutionEngines, AreSoughtAmongTheFirstFewAtFirst) {
  run({});
  EXPECT_THAT(engine_control().asked, Each(8));
  EXPECT_THAT(engine_control().asked, SizeIs(3));
  engine_control() = {};
  x_.clear();
  run({}, DType::kF32, cuda_on_host::kHeightOfTensorCores);
  EXPECT_THAT(engine_control().executed, Each(EngineNumber::kPlain));
  EXPECT_THAT(engine_control().asked, ElementsAre(8, Gt(8), 8, Gt(8), 8, Gt(8)));
}

TEST_F(ConvolutionEngines, AreMeasuredOnceIfThatIsWanted) {
  constexpr int kMeasured = 3 * 2 * 2 * (1 + 3);  // passes, engines, settings, runs
  const Passes expected = run({});
  for (const auto& [slow, fast] : {std::pair(EngineNumber::kPlain, EngineNumber::kOtherPlain),
                                   std::pair(EngineNumber::kOtherPlain, EngineNumber::kPlain)}) {
    engine_control() = {};
    engine_control().slow = slow;
    EXPECT_EQ(run({.autotune = true}), expected) << "nothing is added while they are measured";
    const auto& executed = engine_control().executed;
    ASSERT_THAT(executed, SizeIs(kMeasured + 3));
    EXPECT_EQ(executed.back(), fast);
    EXPECT_EQ(std::count(executed.begin(), executed.end(), slow), kMeasured / 2);
  }
}

TEST_F(ConvolutionEngines, AreOthersWhereTheFirstOnesWorkspaceFindsNoRoom) {
  const Passes expected = run({});
  cuda_on_host::device_pages().set_limit(cuda_on_host::kGreedy / 2);
  for (const bool autotune : {false, true}) {
    SCOPED_TRACE(autotune);
    engine_control() = {};
    engine_control().greedy = EngineNumber::kPlain;
    EXPECT_EQ(run({.autotune = autotune}), expected);
    EXPECT_THAT(engine_control().planned, Contains(EngineNumber::kPlain));
    EXPECT_THAT(engine_control().executed, AllOf(SizeIs(Gt(0)), Each(EngineNumber::kOtherPlain)));
  }
}

TEST_F(ConvolutionEngines, ThatFoundNoMemoryAreNotTakenForMissing) {
  engine_control().without_memory = EngineNumber::kRefuses;
  EXPECT_THAT(
      [&] { run({}, DType::kF16, cuda_on_host::kHeightOfNone); },
      ThrowsMessage<Error>(AllOf(HasSubstr("f16: cudnnBackendFinalize: cuDNN: out of memory "
                                           "(4096 bytes were wanted)"),
                                 Not(HasSubstr("no engine")))));
}

TEST_F(ConvolutionEngines, AreNotMeasuredWhileKernelsAreRecorded) {
  const auto backend = make_cuda_backend({.autotune = true});
  engine_control().slow = EngineNumber::kPlain;
  const Tensor x = Tensor::from<float>(*backend, images_, random_values(images_));
  const Tensor weights = Tensor::from<float>(*backend, {4, 3, 3, 6}, random_values({4, 3, 3, 6}));
  const Tensor y = Tensor::zeros(*backend, {2, 7, 5, 4});
  const auto work = [&] {
    const Tensor result = conv2d(x, weights, Tensor());
    backend->copy(y.data<float>(), result.data<const float>(),
                  static_cast<std::size_t>(y.size()) * sizeof(float));
  };
  const auto recording = backend->record(work);
  EXPECT_THAT(engine_control().executed, ElementsAre(EngineNumber::kPlain));
  recording->replay(0);
  const auto recorded = y.host_values<float>();
  work();
  EXPECT_EQ(y.host_values<float>(), recorded);
  EXPECT_THAT(engine_control().executed, ElementsAre(EngineNumber::kPlain, EngineNumber::kPlain));
}

Logger make_logger(std::ostringstream& text) {
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text);
  sink->set_pattern("%v");
  auto logger = std::make_shared<spdlog::logger>("gpu", sink);
  logger->set_level(spdlog::level::debug);
  return logger;
}

// Programs that go through shapes without end have only so many.
TEST_F(ConvolutionEngines, AreKeptWhileTheirKernelsMayBeRepeated) {
  std::ostringstream text;
  const auto backend = make_cuda_backend({.logger = make_logger(text)});
  const Tensor weights = Tensor::zeros(*backend, {1, 1, 1, 1});
  const auto run_height = [&](std::int64_t height) {
    text.str("");
    conv2d(Tensor::zeros(*backend, {1, height, 1, 1}), weights, Tensor());
    return text.str();
  };
  auto recording = backend->record([&] { run_height(1); });
  EXPECT_THAT(text.str(), HasSubstr("input [1, 1, 1, 1]"));
  constexpr std::int64_t kMany = 2000;
  for (std::int64_t height = 2; height <= kMany; ++height) ASSERT_NE(run_height(height), "");
  EXPECT_EQ(run_height(1), "");
  recording->replay(0);
  recording.reset();
  EXPECT_NE(run_height(kMany + 1), "");
  EXPECT_NE(run_height(1), "");
}

TEST_F(ConvolutionEngines, AreToldToTheLogOncePerPass) {
  std::ostringstream text;
  const Logger logger = make_logger(text);
  run({.logger = logger});
  EXPECT_THAT(text.str(), AllOf(HasSubstr("conv2d of input [2, 9, 7, 6], weights [4, 3, 3, 6], "
                                          "stride 1, padding 1, f32: engine 7, 0.0 MiB of "
                                          "workspace\n"),
                                HasSubstr("conv2d backward of input [2, 9, 7, 6]"),
                                HasSubstr("conv2d backward of the weights of input")));
  text.str("");
  run({.autotune = true, .logger = logger});
  EXPECT_THAT(text.str(), HasSubstr(" ms; the fastest of 4\n"));
}

TEST_F(ConvolutionEngines, ThatAreMissingAreNamedInOneLine) {
  constexpr const char* kLine =
      "conv2d of input [2, 9, 7, 6], weights [4, 8, 3, 6], stride 1, padding 1, f32: cuDNN has no "
      "engine that gives the same bits every time; the last failure: cudnnBackendFinalize: "
      "cuDNN: not supported (this engine does not do it after all)";
  EXPECT_THAT([&] { run({}, DType::kF32, cuda_on_host::kHeightOfNone); },
              ThrowsMessage<Error>(StrEq(kLine)));
}

TEST_F(ConvolutionEngines, AreNotGivenAddressesThatAreNotAligned) {
  const auto backend = make_cuda_backend();
  const Tensor flat = Tensor::zeros(*backend, {1000});
  const Tensor weights = Tensor::view_of(flat, 1, {4, 3, 3, 6});
  EXPECT_THAT(
      [&] { conv2d(Tensor::zeros(*backend, images_), weights, Tensor()); },
      ThrowsMessage<Error>(AllOf(HasSubstr("weights [4, 3, 3, 6]"), HasSubstr("16 bytes"))));
}

}  // namespace
}  // namespace dlaunch::nn
