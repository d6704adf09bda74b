// Optimizer: turns gradients into new parameters, on the flat arrays of flat_parameters.h.
//
// A step may be taken in parts, as soon as the gradients of a part are final:
//
//   optimizer.begin_step(learning_rate);
//   for (each part) optimizer.update(begin, end);
//
// Parameters that require no gradient when an optimizer is made (Tensor::set_requires_grad(false))
// are frozen: it leaves them as they are.
//
// Optimizers share the parameters' memory and own their state. One thread at a time. Constructors
// throw Error for options that make no sense.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nn/checkpoint/named_tensors.h"
#include "nn/core/flat_parameters.h"

namespace dlaunch::nn {

/// A number for each kind of parameter.
struct PerKind {
  double weight = 0;
  double bias = 0;
  double norm = 0;
  double stem = 0;

  double of(ParameterKind kind) const;
  static PerKind uniform(double value) { return {value, value, value, value}; }
  /// Nothing for biases and normalisation parameters.
  static PerKind weights_only(double value) { return {value, 0, 0, 0}; }
  /// Error that begins with `what` if one of them is negative or not finite.
  void check(const std::string& what) const;
};

using WeightDecay = PerKind;

/// Neighbours in the flat arrays that are treated alike.
struct OptimizerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double weight_decay = 0;
  double rate_factor = 1;  // of the learning rate
  bool stem = false;       // ParameterKind::kStem
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  virtual void begin_step(double learning_rate) = 0;
  /// The learning rate of the stem's bias (ParameterKind::kStem) from the next step on, whatever
  /// the others'; before the first call it is theirs.
  virtual void set_stem_rate(double learning_rate) { stem_rate_ = learning_rate; }
  /// From now on update() leaves parameters and state as they are whenever this word (f32 [1], on
  /// the same backend) is not 0 as its kernels come to it; the step counts all the same.
  virtual void skip_when(Tensor word) { skip_ = std::move(word); }
  /// Updates elements [begin, end) of the flat parameters from their gradients, which it leaves as
  /// they are; each element once per step.
  virtual void update(std::int64_t begin, std::int64_t end) = 0;
  /// Whether parts must begin and end between parameters.
  virtual bool needs_whole_parameters() const { return false; }
  /// For a checkpoint, sharing memory: scalars() and, parameter by parameter, what flat_state()
  /// holds: "velocity.NAME" and the like.
  virtual std::vector<NamedTensor> state() const;
  /// State that lies beside the flat parameters, f32 of their size: "velocity" and the like.
  virtual std::vector<NamedTensor> flat_state() const = 0;
  /// State that does not grow with the parameters; the same for every part of them.
  virtual std::vector<NamedTensor> scalars() const { return {}; }
  /// Bytes of state.
  virtual std::size_t state_bytes() const = 0;

  /// What it updates.
  const FlatParameters& parameters() const { return parameters_; }

  /// A whole step at once.
  void step(double learning_rate) {
    begin_step(learning_rate);
    update(0, parameters_.values.size());
  }

 protected:
  explicit Optimizer(FlatParameters parameters) : parameters_(std::move(parameters)) {}

  /// Of a step whose learning rate is this one.
  double rate_of(const OptimizerRange& range, double learning_rate) const {
    return range.rate_factor * (range.stem ? stem_rate_.value_or(learning_rate) : learning_rate);
  }
  /// For kernels; null: steps are never skipped.
  const float* skip() const { return skip_.defined() ? skip_.data<const float>() : nullptr; }
  /// f32 beside the flat parameters, zeros.
  Tensor make_state() const;
  /// Views of `flat` as "PREFIX.NAME" of each parameter in `views`.
  static void append_state(const std::string& prefix, const Tensor& flat,
                           const std::vector<FlatView>& views, std::vector<NamedTensor>& all);

 private:
  FlatParameters parameters_;
  std::optional<double> stem_rate_;
  Tensor skip_;
};

/// Of the parameters that require gradients. `views` ascend; neighbours that are alike become one
/// range, with the padding between them (zeros, which stay zeros).
std::vector<OptimizerRange> optimizer_ranges(const std::vector<FlatView>& views,
                                             const PerKind& weight_decay,
                                             const PerKind& rate_factors);

/// Factors (optimizer_kernels.h) in a backend's memory, new ones for every step.
template <typename Factors>
class FactorTable {
 public:
  FactorTable(Backend& backend, std::size_t size)
      : floats_(Tensor::zeros(backend, {static_cast<std::int64_t>(size * kFloats)})) {}

  /// As many as the table has.
  void set(const std::vector<Factors>& factors) {
    std::vector<float> floats(factors.size() * kFloats);
    if (!floats.empty()) std::memcpy(floats.data(), factors.data(), floats.size() * sizeof(float));
    floats_.set_values(std::span<const float>(floats));
  }
  const Factors* data() const {
    return reinterpret_cast<const Factors*>(floats_.data<const float>());
  }

 private:
  static constexpr std::size_t kFloats = sizeof(Factors) / sizeof(float);
  Tensor floats_;
};

/// Calls `function(range, first, count)` for what each range has in common with [begin, end).
void for_each_part(const std::vector<OptimizerRange>& ranges, std::int64_t begin, std::int64_t end,
                   const std::function<void(const OptimizerRange&, std::int64_t first,
                                            std::int64_t count)>& function);

}  // namespace dlaunch::nn
