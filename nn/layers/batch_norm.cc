#include "nn/layers/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/core/autograd.h"
#include "nn/core/checks.h"
#include "nn/layers/pooling.h"

namespace dlaunch::nn {
namespace {

constexpr std::int64_t kMostParts = 65535;  // as blocks of a CUDA grid in one direction

NormExtent extent_of(const Tensor& x, RowParts parts) {
  const std::int64_t channels = x.shape()[-1];  // at least one
  return {.rows = x.size() / channels, .channels = channels, .parts = parts};
}

bool takes_residual(NormActivation activation) {
  return activation == NormActivation::kNone || activation == NormActivation::kRelu;
}

const float* values_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<const float>() : nullptr;
}

const char* to_string(NormActivation activation) {
  switch (activation) {
    case NormActivation::kNone:
      return "none";
    case NormActivation::kRelu:
      return "ReLU";
    case NormActivation::kGelu:
      return "GELU";
    case NormActivation::kSilu:
      return "SiLU";
    case NormActivation::kCelu:
      return "CELU";
  }
  return "unknown";
}

Tensor empty_like(const Tensor& x) {
  return Tensor::empty(x.backend(), x.shape(), x.dtype());
}

/// Sums `values` (f64) over the ranks of `group`.
void sum_over(Communicator& group, const Tensor& values, const std::string& label,
              const char* direction) {
  const Buffer buffer(values.data<double>(), static_cast<std::size_t>(values.size()), DType::kF64);
  throw_if_error(group.all_reduce(buffer).within(label + " " + direction));
}

/// What backward must know besides what was normalised.
struct Saved {
  NormFunction function;  // points into the next three
  Tensor statistics;      // finished
  Tensor weight;          // detached; undefined without one
  Tensor bias;            // detached; undefined without one
  Tensor output;          // detached; undefined but for ReLU behind a residual
  RowParts parts;
  std::optional<PoolGeometry> pool;  // in the same pass
  Tensor argmax;                     // of that
  bool of_batch = true;
  Communicator* group = nullptr;  // null: this rank alone
  std::string label;
};

class BatchNormFunction : public Function {
 public:
  BatchNormFunction(Tensor input, Saved saved)
      : input_(std::move(input)), saved_(std::move(saved)) {}

  std::string_view name() const override { return "batch_norm"; }

  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& context) override {
    const NormExtent extent = extent_of(input_, saved_.parts);
    const Tensor sums =
        Tensor::empty(input_.backend(), {saved_.parts.count, 2 * extent.channels}, DType::kF64);
    const Tensor weight_grad = affine_gradient(context, 1);
    const Tensor bias_grad = affine_gradient(context, 2);
    const AffineGradients affine{
        .gamma = weight_grad.defined() ? weight_grad.data<float>() : nullptr,
        .beta = bias_grad.defined() ? bias_grad.data<float>() : nullptr};
    Tensor gradient = summed(extent, std::move(grad_output), sums, affine);
    // The other ranks' input gradients need this rank's sums, whether or not it needs theirs.
    if (saved_.group != nullptr) sum_over(*saved_.group, sums, saved_.label, "backward");
    const Tensor residual_grad = context.needs(3) ? gradient : Tensor();
    Tensor input_grad;
    if (context.needs(0))
      input_grad = saved_.pool.has_value()
                       ? gradient_before_pool(*saved_.pool, gradient, sums)
                       : gradient_before_norm(extent, std::move(gradient), sums);
    return {input_grad, weight_grad, bias_grad, residual_grad};
  }

 private:
  /// Fills `sums`, adds to `affine`. Returns what is left to go through function_of_gradient(): the
  /// gradient behind ReLU, which is the residual's too, or `grad_output` as it came.
  Tensor summed(NormExtent extent, Tensor grad_output, const Tensor& sums,
                AffineGradients affine) const {
    NormKernels& norm = input_.backend().norm();
    const ConstArrayRef dy = grad_output.read();
    if (!saved_.output.defined()) {
      norm.backward_sums(extent, dy, input_.read(), saved_.function, sums.data<double>(), affine);
      return grad_output;
    }
    Tensor masked = grad_output.sole_owner() ? grad_output.detach() : empty_like(grad_output);
    norm.masked_backward_sums(extent, dy, input_.read(), saved_.output.read(),
                              saved_.function.statistics, sums.data<double>(), affine,
                              masked.write());
    return masked;
  }

  NormFunction function_of_gradient() const {
    NormFunction function = saved_.function;
    if (saved_.output.defined()) function.activation = NormActivation::kNone;
    return function;
  }

  /// Where to add the gradient of weight (1) or bias (2); undefined if nobody wants it.
  Tensor affine_gradient(const BackwardContext& context, std::size_t i) const {
    if (!context.needs(i)) return {};
    Tensor existing = context.accumulate_into(i);
    return existing.defined() ? existing : Tensor::zeros(input_.backend(), {input_.shape()[-1]});
  }

  /// Null where the statistics did not depend on the batch.
  const double* sums_or_null(const Tensor& sums) const {
    return saved_.of_batch ? sums.data<const double>() : nullptr;
  }

  Tensor gradient_before_norm(NormExtent extent, Tensor gradient, const Tensor& sums) const {
    const ConstArrayRef dy = gradient.read();
    Tensor result = gradient.sole_owner() ? std::move(gradient) : empty_like(gradient);
    input_.backend().norm().backward_data(extent, dy, input_.read(), function_of_gradient(),
                                          sums_or_null(sums), result.write());
    return result;
  }

  Tensor gradient_before_pool(const PoolGeometry& pool, const Tensor& gradient,
                              const Tensor& sums) const {
    Backend& backend = input_.backend();
    Tensor result =
        Tensor::empty(backend, {pool.n, pool.height, pool.width, pool.channels}, input_.dtype());
    backend.norm().pooled(pool)->backward_data(
        pool, saved_.parts.count, gradient.read(), input_.read(),
        saved_.argmax.data<const std::uint8_t>(), function_of_gradient(), sums_or_null(sums),
        result.write());
    return result;
  }

  Tensor input_;  // of the normalisation
  Saved saved_;
};

}  // namespace

BatchNorm::BatchNorm(Backend& backend, std::int64_t channels, BatchNormOptions options)
    : BatchNorm(backend, channels, options, "BatchNorm", nullptr) {}

BatchNorm::BatchNorm(Backend& backend, std::int64_t channels, BatchNormOptions options,
                     std::string label, Communicator* group)
    : channels_(channels), options_(options), label_(std::move(label)), group_(group) {
  if (channels < 1) throw Error(label_ + ": there must be at least one channel");
  if (options.parts < 1 || options.parts > kMostParts)
    throw Error(label_ + ": parts: " + std::to_string(options.parts) + " should be 1 to " +
                std::to_string(kMostParts));
  if (!(options.momentum >= 0 && options.momentum <= 1))
    throw Error(label_ + ": momentum must be 0 to 1");
  if (!(options.eps >= 0 && std::isfinite(options.eps)))
    throw Error(label_ + ": eps must be a finite number from 0");
  if (options.activation == NormActivation::kCelu && !(options.celu_alpha > 0))
    throw Error(label_ + ": celu_alpha must be above 0");
  const std::vector<float> ones(static_cast<std::size_t>(channels), 1.0F);
  if (options.affine && options.scale)
    weight_ =
        add_parameter("weight", Tensor::from(backend, {channels}, ones), ParameterKind::kNorm);
  if (options.affine) {
    bias_ = add_parameter("bias", Tensor::zeros(backend, {channels}), options.bias_kind);
  }
  if (options.track_running_stats) {
    running_mean_ = add_buffer("running_mean", Tensor::zeros(backend, {channels}));
    running_var_ = add_buffer("running_var", Tensor::from(backend, {channels}, ones));
  }
}

std::uint8_t* BatchNorm::Pooled::argmax_or_null() const {
  return argmax.defined() ? argmax.data<std::uint8_t>() : nullptr;
}

// By value: sole_owner() tells whether the input was given away.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
Tensor BatchNorm::forward(Tensor input, const Tensor& residual) {
  check(input, residual);
  const bool of_batch = is_training() || !options_.track_running_stats;
  // As in PyTorch, evaluation never waits for other ranks. Where there are none, nobody is asked.
  Communicator* group = is_training() && group_ != nullptr && group_->size() > 1 ? group_ : nullptr;
  const bool recording = is_recording({input, weight_, bias_, residual});
  std::optional<Pooled> pooled = of_batch ? pooled_in_same_pass(input, recording) : std::nullopt;
  if (options_.pool.has_value() && !pooled.has_value()) input = max_pool2d(input, *options_.pool);
  const RowParts parts =
      is_training() ? parts_of(pooled.has_value() ? pooled->x : input) : RowParts();
  const Tensor statistics = of_batch ? statistics_of_batch(input, pooled, parts, group)
                                     : running_statistics(input.backend());
  if (pooled.has_value() && !recording) input = std::move(pooled->x);  // nobody wants it any more

  const Tensor& x = pooled.has_value() && recording ? pooled->x : input;
  const ConstArrayRef from = x.read();
  Tensor output = !recording && x.sole_owner() ? x.detach() : empty_like(x);
  x.backend().norm().normalise(extent_of(x, parts), from, function(statistics),
                               residual.defined() ? residual.read() : ConstArrayRef(),
                               output.write());
  if (recording) {
    const bool output_tells = residual.defined() && options_.activation == NormActivation::kRelu;
    Saved saved{.function = function(statistics),
                .statistics = statistics,
                .weight = weight_.defined() ? weight_.detach() : Tensor(),
                .bias = bias_.defined() ? bias_.detach() : Tensor(),
                .output = output_tells ? output.detach() : Tensor(),
                .parts = parts,
                .pool = pooled.has_value() ? std::optional(pooled->geometry) : std::nullopt,
                .argmax = pooled.has_value() ? pooled->argmax : Tensor(),
                .of_batch = of_batch,
                .group = group,
                .label = label_};
    record(output, {input, weight_, bias_, residual},
           std::make_unique<BatchNormFunction>(x.detach(), std::move(saved)));
  }
  return output;
}

NormFunction BatchNorm::function(const Tensor& statistics) const {
  return {.statistics = statistics.data<const double>(),
          .gamma = values_or_null(weight_),
          .beta = values_or_null(bias_),
          .activation = options_.activation,
          .alpha = options_.celu_alpha};
}

RowParts BatchNorm::parts_of(const Tensor& x) const {
  const std::int64_t sample = x.shape().rank() == 4 ? x.shape()[1] * x.shape()[2] : 1;
  return {.count = options_.parts, .sample_rows = std::max<std::int64_t>(sample, 1)};
}

void BatchNorm::check(const Tensor& input, const Tensor& residual) const {
  const Shape output = output_shape(input.shape());
  require_activation(label_, input);
  if (!residual.defined()) return;
  if (!takes_residual(options_.activation))
    throw Error(label_ + ": a residual goes with ReLU or no activation; apply " +
                to_string(options_.activation) + " after the layer");
  if (residual.shape() != output)
    throw Error(label_ + ": residual " + residual.shape().to_string() + " for a result " +
                output.to_string());
  require_same_dtype(label_, input, residual);
}

std::optional<BatchNorm::Pooled> BatchNorm::pooled_in_same_pass(const Tensor& input,
                                                                bool recording) const {
  if (!options_.pool.has_value()) return {};
  const PoolGeometry geometry = max_pool2d_geometry(input.shape(), *options_.pool);
  Backend& backend = input.backend();
  PooledNormKernels* kernels = backend.norm().pooled(geometry);
  if (kernels == nullptr) return {};
  return Pooled{
      .geometry = geometry,
      .kernels = *kernels,
      .x = Tensor::empty(backend, geometry.output(), input.dtype()),
      .argmax = recording ? Tensor::empty(backend, geometry.output(), DType::kU8) : Tensor()};
}

Tensor BatchNorm::statistics_of_batch(const Tensor& input, const std::optional<Pooled>& pooled,
                                      RowParts parts, Communicator* group) {
  NormKernels& norm = input.backend().norm();
  Tensor statistics =
      Tensor::empty(input.backend(), {parts.count, norm_statistics_size(channels_)}, DType::kF64);
  const StatisticsFinish finish = statistics_finish();
  const StatisticsFinish* const at_once = group == nullptr ? &finish : nullptr;
  bool finished = pooled.has_value()
                      ? pooled->kernels.pool_and_sum(pooled->geometry, parts.count, input.read(),
                                                     pooled->x.write(), pooled->argmax_or_null(),
                                                     at_once, statistics.data<double>())
                      : norm.batch_statistics(extent_of(input, parts), input.read(), at_once,
                                              statistics.data<double>());
  if (group != nullptr) {
    sum_over(*group, statistics, label_, "forward");
    finished = norm.finish_statistics(parts.count, channels_, finish, statistics.data<double>());
  }
  if (!finished) {
    const Shape& shape = pooled.has_value() ? pooled->x.shape() : input.shape();
    throw Error(label_ + ": the batch" +
                (parts.count > 1 ? ", in " + std::to_string(parts.count) + " parts," : "") +
                " has a single value per channel (local input " + shape.to_string() +
                "), statistics of the batch need more");
  }
  return statistics;
}

StatisticsFinish BatchNorm::statistics_finish() const {
  RunningStatistics running;
  if (options_.track_running_stats) {
    running = {.mean = running_mean_.data<float>(), .variance = running_var_.data<float>()};
  }
  return {.eps = options_.eps, .momentum = options_.momentum, .running = running};
}

Tensor BatchNorm::running_statistics(Backend& backend) const {
  Tensor statistics = Tensor::empty(backend, {1, norm_statistics_size(channels_)}, DType::kF64);
  backend.norm().statistics_from_running(channels_, options_.eps, running_mean_.data<const float>(),
                                         running_var_.data<const float>(),
                                         statistics.data<double>());
  return statistics;
}

std::string BatchNorm::kind() const {
  return std::string(group_ == nullptr ? "BatchNorm(" : "SyncBatchNorm(") +
         std::to_string(channels_) +
         (!options_.affine ? ", no affine"
          : options_.scale ? ""
                           : ", no scale") +
         (options_.parts == 1 ? "" : ", " + std::to_string(options_.parts) + " parts") +
         (options_.activation == NormActivation::kNone
              ? ""
              : std::string(", ") + to_string(options_.activation)) +
         (options_.pool.has_value() ? ", after " + MaxPool2d(*options_.pool).kind() : "") + ")";
}

Shape BatchNorm::output_shape(const Shape& input) const {
  if ((input.rank() != 2 && input.rank() != 4) || input[-1] != channels_) {
    throw Error(label_ + ": input " + input.to_string() + " should be [N, " +
                std::to_string(channels_) + "] or [N, H, W, " + std::to_string(channels_) + "]");
  }
  return options_.pool.has_value() ? max_pool2d_geometry(input, *options_.pool).output() : input;
}

}  // namespace dlaunch::nn
