// Reverse-mode differentiation. An operation that runs while gradients are recorded hands its
// result, its inputs and a Function to record(); backward() walks the graph of these in reverse
// topological order and frees it on the way.
//
// An operation looks like this:
//
//   class ReluFunction : public Function {
//    public:
//     explicit ReluFunction(Tensor output) : output_(std::move(output)) {}
//     std::string_view name() const override { return "relu"; }
//     std::vector<Tensor> backward(Tensor grad_output, const BackwardContext&) override;
//    private:
//     Tensor output_;   // saved values: use detach()ed tensors, a handle to the output is a cycle
//   };
//
//   Tensor relu(Tensor x) {
//     Tensor y = ...;
//     if (is_recording({x})) record(y, {x}, std::make_unique<ReluFunction>(y.detach()));
//     return y;
//   }
//
// One thread at a time walks a graph.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "nn/core/tensor.h"

namespace dlaunch::nn {

/// What a Function may know about its inputs during backward.
class BackwardContext {
 public:
  virtual ~BackwardContext() = default;
  /// Whether anybody wants the gradient of input `i`; if not, its place may stay undefined.
  virtual bool needs(std::size_t i) const = 0;
  /// If input `i` is a leaf whose gradient exists already, that gradient: a Function that can, adds
  /// to it directly and returns this very tensor. Else undefined.
  virtual Tensor accumulate_into(std::size_t i) const = 0;
};

/// The tensor that a Function adds input `i`'s gradient to and returns: the leaf's own gradient if
/// it has one, else a new one of zeros.
Tensor gradient_sum(const BackwardContext& context, std::size_t i, Backend& backend,
                    const Shape& shape);

/// The backward half of an operation with one result; holds what it needs from forward.
class Function {
 public:
  virtual ~Function() = default;
  virtual std::string_view name() const = 0;
  /// The gradients of the inputs, in the order given to record(); undefined means zero. Called once
  /// at most. grad_output has the shape of the result; if it is sole_owner() it may be overwritten
  /// and returned.
  virtual std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& context) = 0;
};

/// True if gradients are recorded on this thread and at least one of the (defined) inputs needs
/// one.
bool is_recording(std::initializer_list<Tensor> inputs);

/// Makes `output` the result of `function` on `inputs`. Undefined inputs are allowed (a bias that
/// is not there); they never need a gradient.
void record(Tensor& output, std::initializer_list<Tensor> inputs,
            std::unique_ptr<Function> function);

/// Is told what backward() does.
class BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;
  /// `label` is what label_operations() gave the operation, or -1; `name` is its Function's.
  virtual void operation_begins(int label, std::string_view name) = 0;
  /// `gradients` are those of its inputs; a leaf's may be the sum so far.
  virtual void operation_ended(int label, std::string_view name,
                               const std::vector<Tensor>& gradients) = 0;
};

/// Labels the operation that made `output` and all before it, back to those that have a label
/// already. Nothing if none was recorded. `label` is at least 0.
void label_operations(const Tensor& output, int label);

struct BackwardOptions {
  /// Called once per leaf, as soon as its gradient of this pass is final in leaf.grad(), in an
  /// order that depends on the graph alone. Not called for leaves the loss does not depend on.
  std::function<void(const Tensor& leaf)> on_gradient_ready;
  /// d(objective)/d(loss), of loss's shape; undefined: 1, and the loss must have one element.
  Tensor gradient;
  BackwardObserver* observer = nullptr;  // null: nobody
};

/// Error unless backward() can walk the graph of `loss`: it has none, or it was walked before.
void require_graph(const Tensor& loss);

/// Adds the gradient of `loss` to grad() of every leaf that requires one and that `loss` was
/// computed from: into the tensor set by set_grad(), else into a new one. Error as
/// require_graph(), and for a loss without `options.gradient` that is not one element of f32.
void backward(const Tensor& loss, const BackwardOptions& options = {});

/// Nothing is recorded on this thread while one of these lives.
class NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool before_;
};

}  // namespace dlaunch::nn
