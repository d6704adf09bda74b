#include "nn/cuda/conv2d.h"

#include <exception>
#include <memory>

#include <spdlog/logger.h>

#include "nn/core/error.h"
#include "nn/core/widened.h"
#include "nn/cuda/check.h"
#include "nn/cuda/kernels.h"
#include "runtime/base/process_stat.h"

namespace dlaunch::nn::cuda {
namespace {

// More passes of geometries than any network has; reached only by programs that go through many
// shapes. They are forgotten then, but not while their kernels may be repeated: some are compiled
// for their plan, and go with it.
constexpr std::size_t kMostPlans = 1536;

std::int64_t weight_count(const Conv2dGeometry& g) {
  return g.out * g.kernel_h * g.kernel_w * g.in;
}

// Weights in a type of 16 bits, as they were at `version`, unless a recording has failed since that
// may have been about to convert them.
struct ConvertedWeights final : DerivedData {
  ConvertedWeights(CachingAllocator& memory, std::size_t bytes) : values(memory, bytes) {}
  ScratchMemory values;
  DType dtype = DType::kF32;  // none yet
  std::uint64_t version = 0;
  std::uint64_t failed_recordings = 0;  // until then
};

}  // namespace

Convolutions::Convolutions(Device& device, const CudaOptions& options)
    : device_(device),
      tf32_(options.tf32),
      autotune_(options.autotune),
      logger_(options.logger ? options.logger : make_null_logger()) {
  if (options.ask_early) {
    first_question_ = std::jthread([this] { ask_early(); });
  } else {
    handle_.emplace(device.stream());
  }
}

std::size_t Convolutions::Hash::operator()(const Convolution& convolution) const {
  const Conv2dGeometry& g = convolution.geometry;
  auto hash = static_cast<std::size_t>(convolution.dtype);
  for (const std::int64_t value :
       {static_cast<std::int64_t>(convolution.pass), g.n, g.height, g.width, g.in, g.out,
        g.kernel_h, g.kernel_w, g.stride_h, g.stride_w, g.pad_h, g.pad_w}) {
    hash = hash * 0x9E3779B97F4A7C15U + static_cast<std::size_t>(value);
  }
  return hash ^ (hash >> 29);
}

void Convolutions::await_first_question() {
  if (first_question_.joinable()) first_question_.join();
}

/// Any convolution will do. Making the handle loads libraries, too.
void Convolutions::ask_early() {
  constexpr std::int64_t kChannels = 64;
  constexpr Conv2dGeometry kSome{.n = 1,
                                 .height = 8,
                                 .width = 8,
                                 .in = kChannels,
                                 .out = kChannels,
                                 .kernel_h = 3,
                                 .kernel_w = 3,
                                 .stride_h = 1,
                                 .stride_w = 1,
                                 .pad_h = 1,
                                 .pad_w = 1};
  try {
    check(cudaSetDevice(device_.number()), "device");
    handle_.emplace(device_.stream());
    logger_->debug("cuDNN has a handle {:.3f} s after the start", seconds_since_process_start());
    const Convolution convolution{kSome, DType::kF16, ConvolutionPass::kForward};
    (void)find_engines(handle_->get(), make_operation_graph(handle_->get(), convolution),
                       TensorCores::kPreferred, 1);
    logger_->debug("cuDNN has answered {:.3f} s after the start", seconds_since_process_start());
  } catch (const std::exception&) {
    // Whoever asks for a convolution that is needed will be told.
  }
}

/// None if cuDNN has no engine for it in that type. Throws CudnnError if it has none in f32.
///
/// Ranks choose each for itself. Where they measure, one may take another engine than the next, and
/// round otherwise; that does no harm, as they add up gradients of different samples anyway, and
/// the parameters that all compute from the sums stay the same.
std::optional<ConvolutionPlan> Convolutions::choose(const Convolution& convolution,
                                                    const ConvolutionArrays& arrays) {
  const bool f32 = convolution.dtype == DType::kF32;
  try {
    await_first_question();
    if (!handle_) handle_.emplace(device_.stream());  // what has failed there is told here
    auto plan =
        ConvolutionPlan::choose(handle_->get(), device_, convolution, tf32_, autotune_, arrays);
    logger_->debug("{}: {}", convolution.describe(), plan.description());
    return plan;
  } catch (const CudnnError& error) {
    if (f32 || !error.not_supported()) throw;
    logger_->warn("{}: {}; computed in f32, which is slower", convolution.describe(), error.what());
    return {};
  }
}

/// False, and nothing has happened, if cuDNN has no engine for it in that type. Throws Error.
bool Convolutions::run(const Convolution& convolution, const ConvolutionArrays& arrays) {
  try {
    auto plan = plans_.find(convolution);
    if (plan == plans_.end()) {
      if (plans_.size() >= kMostPlans && !device_.pools().in_recordings()) plans_.clear();
      plan = plans_.emplace(convolution, choose(convolution, arrays)).first;
    }
    if (!plan->second) return false;
    plan->second->run(handle_->get(), device_, arrays);
    return true;
  } catch (const Error& error) {
    throw Error(convolution.describe() + ": " + error.what());
  }
}

/// The weights in the type that activations have.
const void* Convolutions::weights_in(DType dtype, const Conv2dGeometry& geometry,
                                     const WeightsRef& weights) {
  if (dtype == DType::kF32) return weights.data;
  const std::int64_t count = weight_count(geometry);
  if (!*weights.derived)
    *weights.derived = std::make_unique<ConvertedWeights>(
        device_.memory(), static_cast<std::size_t>(count) * size_of(dtype));
  auto& converted = static_cast<ConvertedWeights&>(**weights.derived);
  if (converted.version != weights.version || converted.dtype != dtype ||
      converted.failed_recordings != device_.failed_recordings()) {
    convert(device_, count, {weights.data, DType::kF32}, {converted.values.get(), dtype});
    converted.version = weights.version;
    converted.dtype = dtype;
    converted.failed_recordings = device_.failed_recordings();
  }
  return converted.values.get();
}

void Convolutions::forward(const Conv2dGeometry& geometry, ConstArrayRef x,
                           const WeightsRef& weights, const float* bias_or_null, ArrayRef y) {
  if (geometry.n == 0) return;
  if (!run({geometry, x.dtype, ConvolutionPass::kForward},
           {x.data, weights_in(x.dtype, geometry, weights), y.data})) {
    const Widened result(device_.memory(), Conversion{device_}, geometry.output().size());
    forward(geometry,
            Widened(device_.memory(), Conversion{device_}, geometry.input().size(), x).array(),
            weights, bias_or_null, result.array());
    return result.narrow(y);
  }
  if (bias_or_null != nullptr)
    add_to_rows(device_, geometry.n * geometry.out_height() * geometry.out_width(), geometry.out,
                bias_or_null, y);
}

void Convolutions::backward_data(const Conv2dGeometry& geometry, ConstArrayRef dy,
                                 const WeightsRef& weights, ArrayRef dx) {
  if (geometry.n == 0) return;
  if (!run({geometry, dy.dtype, ConvolutionPass::kBackwardData},
           {dy.data, weights_in(dy.dtype, geometry, weights), dx.data})) {
    const Widened result(device_.memory(), Conversion{device_}, geometry.input().size());
    backward_data(
        geometry,
        Widened(device_.memory(), Conversion{device_}, geometry.output().size(), dy).array(),
        weights, result.array());
    result.narrow(dx);
  }
}

void Convolutions::backward_weights(const Conv2dGeometry& geometry, ConstArrayRef x,
                                    ConstArrayRef dy, float* dw, float* db_or_null) {
  if (geometry.n == 0) return;
  const Convolution convolution{geometry, x.dtype, ConvolutionPass::kBackwardWeights};
  if (convolution.accumulates()) {
    run(convolution, {x.data, dy.data, dw});
  } else {
    const std::int64_t count = weight_count(geometry);
    const ScratchMemory gradient(device_.memory(),
                                 static_cast<std::size_t>(count) * size_of(x.dtype));
    if (!run(convolution, {x.data, dy.data, gradient.get()}))
      return backward_weights(
          geometry,
          Widened(device_.memory(), Conversion{device_}, geometry.input().size(), x).array(),
          Widened(device_.memory(), Conversion{device_}, geometry.output().size(), dy).array(), dw,
          db_or_null);
    accumulate(device_, count, {gradient.get(), x.dtype}, dw);
  }
  if (db_or_null != nullptr)
    accumulate_column_sums(device_, geometry.n * geometry.out_height() * geometry.out_width(),
                           geometry.out, dy, db_or_null);
}

}  // namespace dlaunch::nn::cuda
