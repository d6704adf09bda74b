#include "nn/layers/batch_norm.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/core/autograd.h"
#include "nn/core/checks.h"
#include "nn/core/norm_kernels.h"
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

void max_pool(const Tensor& input, const PoolGeometry& geometry, const Tensor& x,
              std::uint8_t* argmax) {
  input.backend().max_pool2d(geometry, input.read(), x.write(), argmax);
}

/// What backward must know besides what was normalised.
struct Saved {
  Tensor statistics;  // finished
  Tensor weight;      // detached; undefined without affine
  Tensor output;      // detached; undefined without ReLU
  std::optional<PoolGeometry> pool;
  Tensor argmax;  // of the pooling
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
    Tensor gradient = behind_relu(extent, std::move(grad_output), sums);
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
                       ? gradient_before_pool(*saved_.pool, std::move(gradient), sums)
                       : gradient_before_norm(extent, std::move(gradient), sums);
    return {input_grad, weight_grad, bias_grad, residual_grad};
  }

 private:
  const double* statistics() const { return saved_.statistics.data<const double>(); }

  /// The gradient of what ReLU was given, and the sums over it.
  Tensor behind_relu(NormExtent extent, Tensor grad_output, const Tensor& sums) const {
    NormKernels& norm = input_.backend().norm();
    const ConstArrayRef dy = grad_output.read();
    if (!saved_.output.defined()) {
      norm.backward_sums(extent, dy, input_.read(), statistics(), sums.data<double>());
      return grad_output;
    }
    Tensor masked = grad_output.sole_owner() ? grad_output.detach() : empty_like(grad_output);
    norm.masked_backward_sums(extent, dy, input_.read(), saved_.output.read(), statistics(),
                              sums.data<double>(), masked.write());
    return masked;
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
    input_.backend().norm().backward_data(extent, dy, input_.read(), statistics(),
                                          values_or_null(saved_.weight), sums_or_null(sums),
                                          result.write());
    return result;
  }

  Tensor gradient_before_pool(const PoolGeometry& pool, Tensor gradient, const Tensor& sums) {
    Backend& backend = input_.backend();
    const Shape shape{pool.n, pool.height, pool.width, pool.channels};
    const auto* argmax = saved_.argmax.data<const std::uint8_t>();
    if (PooledNormKernels* kernels = backend.norm().pooled(pool)) {
      Tensor result = Tensor::empty(backend, shape, input_.dtype());
      kernels->backward_data(pool, gradient.read(), input_.read(), argmax, statistics(),
                             values_or_null(saved_.weight), sums_or_null(sums), result.write());
      return result;
    }
    gradient = gradient_before_norm(extent_of(input_), std::move(gradient), sums);
    input_ = Tensor();  // its memory may be the result's
    Tensor result = Tensor::empty(backend, shape, gradient.dtype());
    backend.max_pool2d_backward(pool, gradient.read(), argmax, result.write());
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
  std::optional<Pooled> pooled;
  if (options_.pool.has_value()) pooled = empty_pooled(input, recording);
  const Tensor statistics = finished_statistics(input, pooled, of_batch, group);
  if (pooled.has_value() && !recording) input = std::move(pooled->x);  // nobody wants it any more

  const Tensor& x = pooled.has_value() && recording ? pooled->x : input;
  const ConstArrayRef from = x.read();
  Tensor output = !recording && x.sole_owner() ? x.detach() : empty_like(x);
  x.backend().norm().normalise(
      extent_of(x), from, statistics.data<const double>(), values_or_null(weight_),
      values_or_null(bias_),
      {.residual = residual.defined() ? residual.read() : ConstArrayRef(), .relu = options_.relu},
      output.write());
  if (recording) {
    Saved saved{.statistics = statistics,
                .weight = weight_.defined() ? weight_.detach() : Tensor(),
                .output = options_.relu ? output.detach() : Tensor(),
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

void BatchNorm::check(const Tensor& input, const Tensor& residual) const {
  const Shape output = output_shape(input.shape());
  require_activation(label_, input);
  if (!residual.defined()) return;
  if (residual.shape() != output)
    throw Error(label_ + ": residual " + residual.shape().to_string() + " for a result " +
                output.to_string());
  require_same_dtype(label_, input, residual);
}

BatchNorm::Pooled BatchNorm::empty_pooled(const Tensor& input, bool recording) const {
  const PoolGeometry geometry = max_pool2d_geometry(input.shape(), *options_.pool);
  Backend& backend = input.backend();
  return {.geometry = geometry,
          .x = Tensor::empty(backend, geometry.output(), input.dtype()),
          .argmax = recording ? Tensor::empty(backend, geometry.output(), DType::kU8) : Tensor()};
}

void BatchNorm::batch_statistics(const Tensor& input, const std::optional<Pooled>& pooled,
                                 double* statistics) {
  NormKernels& norm = input.backend().norm();
  if (!pooled.has_value()) return norm.batch_statistics(extent_of(input), input.read(), statistics);
  const Tensor& x = pooled->x;
  if (PooledNormKernels* kernels = norm.pooled(pooled->geometry))
    return kernels->pool_and_sum(pooled->geometry, input.read(), x.write(),
                                 pooled->argmax_or_null(), statistics);
  max_pool(input, pooled->geometry, x, pooled->argmax_or_null());
  norm.batch_statistics(extent_of(x), x.read(), statistics);
}

Tensor BatchNorm::finished_statistics(const Tensor& input, const std::optional<Pooled>& pooled,
                                      bool of_batch, Communicator* group) {
  Backend& backend = input.backend();
  Tensor statistics = Tensor::empty(backend, {2 * channels_ + 1}, DType::kF64);
  if (!of_batch) {
    if (pooled.has_value()) max_pool(input, pooled->geometry, pooled->x, pooled->argmax_or_null());
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
    throw Error(label_ + ": the batch has a single value per channel (local input " +
                input.shape().to_string() + "), training needs more");
  }
  return statistics;
}

std::string BatchNorm::kind() const {
  return std::string(group_ == nullptr ? "BatchNorm(" : "SyncBatchNorm(") +
         std::to_string(channels_) +
         (!options_.affine ? ", no affine"
          : options_.scale ? ""
                           : ", no scale") +
         (options_.relu ? ", ReLU" : "") +
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
