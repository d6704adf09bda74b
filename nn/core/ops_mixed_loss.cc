#include <memory>
#include <utility>
#include <vector>

#include "nn/core/autograd.h"
#include "nn/core/ops.h"

namespace dlaunch::nn {
namespace {

class MixedCrossEntropyFunction : public Function {
 public:
  explicit MixedCrossEntropyFunction(Tensor gradient) : gradient_(std::move(gradient)) {}
  std::string_view name() const override { return "mixed_cross_entropy"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    gradient_.backend().scale(gradient_.size(), 1.0F, grad_output.data<const float>(),
                              gradient_.data<const float>(), gradient_.data<float>());
    return {std::move(gradient_)};
  }

 private:
  Tensor gradient_;  // of the mixture, computed with it
};

/// A loss and, if wanted, its gradient.
struct Part {
  Tensor loss;
  Tensor gradient;
};

Part part(const Tensor& logits, std::span<const std::int32_t> labels,
          const CrossEntropyOptions& options, bool with_gradient) {
  if (!with_gradient) {
    const NoGradGuard no_grad;
    return {cross_entropy(logits, labels, options), {}};
  }
  Tensor leaf = logits.detach();
  leaf.set_requires_grad(true);
  const Tensor loss = cross_entropy(leaf, labels, options);
  backward(loss);
  return {loss.detach(), leaf.grad()};
}

}  // namespace

Tensor mixed_cross_entropy(const Tensor& logits, std::span<const std::int32_t> labels,
                           std::span<const std::int32_t> partner_labels, float own_share,
                           CrossEntropyOptions options) {
  if (!(own_share >= 0 && own_share <= 1))
    throw Error("mixed_cross_entropy: a share of " + std::to_string(own_share) +
                " is not in [0, 1]");
  const bool recording = is_recording({logits});
  Part own = part(logits, labels, options, recording);
  const Part other = part(logits, partner_labels, options, recording);
  Backend& backend = logits.backend();
  const auto mix = [&](const Tensor& to, const Tensor& from) {
    backend.scale(to.size(), own_share, nullptr, to.data<const float>(), to.data<float>());
    backend.axpy(to.size(), 1 - own_share, from.data<const float>(), to.data<float>());
  };
  mix(own.loss, other.loss);
  if (!recording) return own.loss;
  mix(own.gradient, other.gradient);
  record(own.loss, {logits}, std::make_unique<MixedCrossEntropyFunction>(own.gradient));
  return own.loss;
}

}  // namespace dlaunch::nn
