#include "nn/layers/ghost_batch_norm.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "nn/core/autograd.h"

namespace dlaunch::nn {
namespace {

/// A part of the batch and its graph: from a leaf, whose gradient is a part of the whole one's.
struct GhostBatch {
  Tensor input;
  Tensor output;
  std::int64_t begin = 0;  // in elements of the whole batch
};

class GhostBatchNormFunction : public Function {
 public:
  explicit GhostBatchNormFunction(std::vector<GhostBatch> parts) : parts_(std::move(parts)) {}
  std::string_view name() const override { return "ghost_batch_norm"; }

  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& context) override {
    const Tensor whole = grad_output.view({grad_output.size()});
    const Tensor input_grad =
        Tensor::zeros(grad_output.backend(), grad_output.shape(), grad_output.dtype());
    const Tensor flat = input_grad.view({input_grad.size()});
    // The graphs of the parts end in the bias itself and add to its gradient.
    const Tensor bias_grad = context.accumulate_into(1);
    for (GhostBatch& part : parts_) {
      const Shape& shape = part.input.shape();
      part.input.set_grad(Tensor::view_of(flat, part.begin, shape));
      nn::backward(part.output, {.gradient = Tensor::view_of(whole, part.begin, shape)});
    }
    return {input_grad, bias_grad};
  }

 private:
  std::vector<GhostBatch> parts_;
};

}  // namespace

GhostBatchNorm::GhostBatchNorm(Backend& backend, std::int64_t channels,
                               GhostBatchNormOptions options)
    : channels_(channels), parts_(options.parts) {
  if (options.parts < 1) throw Error("GhostBatchNorm: there must be at least one part");
  // So many small steps take the running statistics as far as one step would with their mean.
  const double momentum =
      1 - std::pow(1 - options.momentum, 1 / static_cast<double>(options.parts));
  norm_ = std::make_unique<BatchNorm>(backend, channels,
                                      BatchNormOptions{.eps = options.eps, .momentum = momentum});
  for (const NamedParameter& parameter : norm_->parameters()) {
    Tensor tensor = parameter.tensor;
    if (parameter.name == "bias")
      bias_ = add_parameter("bias", tensor, ParameterKind::kBias);
    else
      tensor.set_requires_grad(false);
  }
  for (const NamedBuffer& buffer : norm_->buffers()) add_buffer(buffer.name, buffer.tensor);
}

Tensor GhostBatchNorm::forward(Tensor input) {
  norm_->train(is_training());
  const Shape shape = output_shape(input.shape());
  const std::int64_t samples = shape[0];
  const std::int64_t parts = std::min(parts_, samples);
  if (!is_training() || parts <= 1) return (*norm_)(std::move(input));

  Tensor output = Tensor::empty(input.backend(), shape, input.dtype());
  const bool recording = is_recording({input, bias_});
  const std::int64_t sample_size = input.size() / samples;
  const Tensor flat = input.detach().view({input.size()});
  const Tensor flat_output = output.view({output.size()});
  std::vector<GhostBatch> graphs;
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t first = samples * i / parts;
    const Shape part_shape = shape.with(0, samples * (i + 1) / parts - first);
    GhostBatch part{.input = Tensor::view_of(flat, first * sample_size, part_shape),
                    .begin = first * sample_size};
    part.input.set_requires_grad(recording);
    part.output = (*norm_)(part.input);
    copy_values(part.output, Tensor::view_of(flat_output, part.begin, part_shape));
    if (recording) graphs.push_back(std::move(part));
  }
  if (recording)
    record(output, {input, bias_}, std::make_unique<GhostBatchNormFunction>(std::move(graphs)));
  return output;
}

std::string GhostBatchNorm::kind() const {
  return "GhostBatchNorm(" + std::to_string(channels_) + ", " + std::to_string(parts_) + " parts)";
}

}  // namespace dlaunch::nn
