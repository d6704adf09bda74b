#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/core/autograd.h"
#include "nn/core/checks.h"
#include "nn/core/ops.h"

namespace dlaunch::nn {
namespace {

class CrossEntropyFunction : public Function {
 public:
  CrossEntropyFunction(Tensor gradient, float factor)
      : gradient_(std::move(gradient)), factor_(factor) {}
  std::string_view name() const override { return "cross_entropy"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    gradient_.backend().scale(gradient_.size(), factor_, grad_output.data<const float>(),
                              gradient_.data<const float>(), gradient_.data<float>());
    return {std::move(gradient_)};
  }

 private:
  Tensor gradient_;  // of the sum, computed with it
  float factor_;
};

void check_cross_entropy(const Tensor& logits, std::size_t labels,
                         const CrossEntropyOptions& options) {
  require_f32("cross_entropy", "logits", logits);
  require_rank("cross_entropy", "logits", logits, 2);
  const Shape& shape = logits.shape();
  if (labels != static_cast<std::size_t>(shape[0])) {
    throw Error("cross_entropy: " + std::to_string(labels) + " labels for logits " +
                shape.to_string());
  }
  if (shape[1] < 1 || shape[1] > std::numeric_limits<std::int32_t>::max()) {
    throw Error("cross_entropy: logits " + shape.to_string() +
                " have an impossible number of classes");
  }
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    throw Error("cross_entropy: label smoothing " + std::to_string(options.label_smoothing) +
                " is not in [0, 1]");
  }
}

void check_label(std::size_t index, std::int64_t label, std::int64_t classes) {
  if (label < 0 || label >= classes) {
    throw Error("cross_entropy: label " + std::to_string(index) + " is " + std::to_string(label) +
                ", but there are " + std::to_string(classes) + " classes");
  }
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, CrossEntropyOptions options) {
  require_rank("cross_entropy", "labels", labels, 1);
  if (labels.dtype() == DType::kI64) {
    std::vector<std::int64_t> host(static_cast<std::size_t>(labels.size()));
    labels.backend().copy_to_host(host.data(), labels.data<const std::int64_t>(),
                                  host.size() * sizeof(std::int64_t));
    return cross_entropy(logits, host, options);
  }
  check_cross_entropy(logits, static_cast<std::size_t>(labels.size()), options);
  const std::int64_t rows = logits.shape()[0];
  Tensor loss = Tensor::empty(logits.backend(), {});
  Tensor gradient;
  const bool recording = is_recording({logits});
  if (recording) gradient = Tensor::empty(logits.backend(), logits.shape());
  logits.backend().cross_entropy(rows, logits.shape()[1], logits.data<const float>(),
                                 labels.data<const std::int32_t>(),
                                 static_cast<float>(options.label_smoothing), loss.data<float>(),
                                 recording ? gradient.data<float>() : nullptr);
  float factor = 1.0F;
  if (options.reduction == Reduction::kMean && rows > 0) {
    factor = 1.0F / static_cast<float>(rows);
    loss.backend().scale(1, factor, nullptr, loss.data<const float>(), loss.data<float>());
  }
  if (recording) {
    record(loss, {logits}, std::make_unique<CrossEntropyFunction>(std::move(gradient), factor));
  }
  return loss;
}

Tensor cross_entropy(const Tensor& logits, std::span<const std::int32_t> labels,
                     CrossEntropyOptions options) {
  check_cross_entropy(logits, labels.size(), options);
  for (std::size_t i = 0; i < labels.size(); ++i) check_label(i, labels[i], logits.shape()[1]);
  return cross_entropy(logits, Tensor::from(logits.backend(), {logits.shape()[0]}, labels),
                       options);
}

Tensor cross_entropy(const Tensor& logits, std::span<const std::int64_t> labels,
                     CrossEntropyOptions options) {
  check_cross_entropy(logits, labels.size(), options);
  std::vector<std::int32_t> narrow(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    check_label(i, labels[i], logits.shape()[1]);
    narrow[i] = static_cast<std::int32_t>(labels[i]);
  }
  return cross_entropy(logits, std::span<const std::int32_t>(narrow), options);
}

}  // namespace dlaunch::nn
