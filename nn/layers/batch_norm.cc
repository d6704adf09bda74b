#include "nn/layers/batch_norm.h"

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

NormExtent extent_of(const Tensor& x) {
  const std::int64_t channels = x.shape()[-1];  // at least one
  return {.rows = x.size() / channels, .channels = channels};
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
  }
  return "unknown";
}

Tensor empty_like(const Tensor& x) {
  return Tensor::empty(x.backend(), x.shape(), x.dtype());
}

/// Sums `values` (f64) over the ranks of `group`; nothing to do for null.
void sum_over(Communicator* group, const Tensor& values, const std::string& label,
              const char* direction) {
  if (group == nullptr) return;
  const Buffer buffer(values.data<double>(), static_cast<std::size_t>(values.size()), DType::kF64);
  throw_if_error(group->all_reduce(buffer).within(label + " " + direction));
}

/// What backward must know besides what was normalised.
struct Saved {
  NormFunction function;             // points into the next three
  Tensor statistics;                 // finished
  Tensor weight;                     // detached; undefined without one
  Tensor bias;                       // detached; undefined without one
  Tensor output;                     // detached; undefined but for ReLU behind a residual
  std::optional<PoolGeometry> pool;  // in the same pass
  Tensor argmax;                     // of that
  bool of_batch = true;
  Communicator* group = nullptr;
  std::string label;
};

class BatchNormFunction : public Function {
 public:
  BatchNormFunction(Tensor input, Saved saved)
      : input_(std::move(input)), saved_(std::move(saved)) {}

  std::string_view name() const override { return "batch_norm"; }

  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& context) override {
    const NormExtent extent = extent_of(input_);
    const Tensor sums = Tensor::empty(input_.backend(), {2 * extent.channels}, DType::kF64);
    Tensor gradient = summed(extent, std::move(grad_output), sums);
    const Tensor weight_grad = affine_gradient(context, 1);
    const Tensor bias_grad = affine_gradient(context, 2);
    input_.backend().norm().accumulate_affine_gradients(
        extent.channels, sums.data<const double>(),
        weight_grad.defined() ? weight_grad.data<float>() : nullptr,
        bias_grad.defined() ? bias_grad.data<float>() : nullptr);
    // The other ranks' input gradients need this rank's sums, whether or not it needs theirs.
    if (saved_.of_batch) sum_over(saved_.group, sums, saved_.label, "backward");
    const Tensor residual_grad = context.needs(3) ? gradient : Tensor();
    Tensor input_grad;
    if (context.needs(0))
      input_grad = saved_.pool.has_value()
                       ? gradient_before_pool(*saved_.pool, gradient, sums)
                       : gradient_before_norm(extent, std::move(gradient), sums);
    return {input_grad, weight_grad, bias_grad, residual_grad};
  }

 private:
  /// Fills `sums`. Returns what is left to go through function_of_gradient(): the gradient behind
  /// ReLU, which is the residual's too, or `grad_output` as it came.
  Tensor summed(NormExtent extent, Tensor grad_output, const Tensor& sums) const {
    NormKernels& norm = input_.backend().norm();
    const ConstArrayRef dy = grad_output.read();
    if (!saved_.output.defined()) {
      norm.backward_sums(extent, dy, input_.read(), saved_.function, sums.data<double>());
      return grad_output;
    }
    Tensor masked = grad_output.sole_owner() ? grad_output.detach() : empty_like(grad_output);
    norm.masked_backward_sums(extent, dy, input_.read(), saved_.output.read(),
                              saved_.function.statistics, sums.data<double>(), masked.write());
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
        pool, gradient.read(), input_.read(), saved_.argmax.data<const std::uint8_t>(),
        function_of_gradient(), sums_or_null(sums), result.write());
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
  const std::vector<float> ones(static_cast<std::size_t>(channels), 1.0F);
  if (options.affine && options.scale)
    weight_ =
        add_parameter("weight", Tensor::from(backend, {channels}, ones), ParameterKind::kNorm);
  if (options.affine) {
    bias_ = add_parameter("bias", Tensor::zeros(backend, {channels}), ParameterKind::kNorm);
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
  // As in PyTorch, evaluation never waits for other ranks.
  Communicator* group = is_training() ? group_ : nullptr;
  const bool recording = is_recording({input, weight_, bias_, residual});
  std::optional<Pooled> pooled = of_batch ? pooled_in_same_pass(input, recording) : std::nullopt;
  if (options_.pool.has_value() && !pooled.has_value()) input = max_pool2d(input, *options_.pool);
  const Tensor statistics = finished_statistics(input, pooled, of_batch, group);
  if (pooled.has_value() && !recording) input = std::move(pooled->x);  // nobody wants it any more

  const Tensor& x = pooled.has_value() && recording ? pooled->x : input;
  const ConstArrayRef from = x.read();
  Tensor output = !recording && x.sole_owner() ? x.detach() : empty_like(x);
  x.backend().norm().normalise(extent_of(x), from, function(statistics),
                               residual.defined() ? residual.read() : ConstArrayRef(),
                               output.write());
  if (recording) {
    const bool output_tells = residual.defined() && options_.activation == NormActivation::kRelu;
    Saved saved{.function = function(statistics),
                .statistics = statistics,
                .weight = weight_.defined() ? weight_.detach() : Tensor(),
                .bias = bias_.defined() ? bias_.detach() : Tensor(),
                .output = output_tells ? output.detach() : Tensor(),
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
          .activation = options_.activation};
}

void BatchNorm::check(const Tensor& input, const Tensor& residual) const {
  const Shape output = output_shape(input.shape());
  require_activation(label_, input);
  if (!residual.defined()) return;
  if (options_.activation == NormActivation::kGelu || options_.activation == NormActivation::kSilu)
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

void BatchNorm::batch_statistics(const Tensor& input, const std::optional<Pooled>& pooled,
                                 double* statistics) {
  if (pooled.has_value())
    return pooled->kernels.pool_and_sum(pooled->geometry, input.read(), pooled->x.write(),
                                        pooled->argmax_or_null(), statistics);
  input.backend().norm().batch_statistics(extent_of(input), input.read(), statistics);
}

Tensor BatchNorm::finished_statistics(const Tensor& input, const std::optional<Pooled>& pooled,
                                      bool of_batch, Communicator* group) {
  Backend& backend = input.backend();
  Tensor statistics = Tensor::empty(backend, {2 * channels_ + 1}, DType::kF64);
  if (!of_batch) {
    backend.norm().statistics_from_running(
        channels_, options_.eps, running_mean_.data<const float>(),
        running_var_.data<const float>(), statistics.data<double>());
    return statistics;
  }
  batch_statistics(input, pooled, statistics.data<double>());
  sum_over(group, statistics, label_, "forward");
  RunningStatistics running;
  if (options_.track_running_stats) {
    running = {.mean = running_mean_.data<float>(), .variance = running_var_.data<float>()};
  }
  if (!backend.norm().finish_statistics(channels_, options_.eps, options_.momentum, running,
                                        statistics.data<double>())) {
    const Shape& shape = pooled.has_value() ? pooled->x.shape() : input.shape();
    throw Error(label_ + ": the batch has a single value per channel (local input " +
                shape.to_string() + "), training needs more");
  }
  return statistics;
}

std::string BatchNorm::kind() const {
  return std::string(group_ == nullptr ? "BatchNorm(" : "SyncBatchNorm(") +
         std::to_string(channels_) +
         (!options_.affine ? ", no affine"
          : options_.scale ? ""
                           : ", no scale") +
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
