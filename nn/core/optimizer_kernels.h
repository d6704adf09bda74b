// OptimizerKernels: the part of a Backend that updates parameters. The rules of backend.h hold.
#pragma once

#include <cstdint>
#include <span>

#include "nn/core/backend.h"
#include "nn/core/loss_scaling.h"

namespace dlaunch::nn {

struct SgdArguments {
  double learning_rate = 0;
  double momentum = 0;
  double weight_decay = 0;
};

struct AdamArguments {
  double learning_rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double correction1 = 1;  // 1 - beta1^t in step t = 1, 2, ...
  double correction2 = 1;
  double weight_decay = 0;
  bool decoupled_decay = false;
};

/// What a step of SGD does to a parameter, in the numbers that kernels use.
struct SgdFactors {
  float rate = 0;
  float decay = 0;
  float momentum = 0;
};

struct AdamFactors {
  float keep = 1;   // of the parameter
  float decay = 0;  // of the parameter, in the gradient
  float one_minus_beta1 = 1;
  float beta2 = 0;
  float one_minus_beta2 = 1;  // rounded once: 1 - beta2 in float would be off by 1e-7 / (1 - beta2)
  float rate = 0;             // corrected
  float root_scale = 1;       // of sqrt(s)
  float eps = 0;
};

/// Parameters that a step of SGD treats alike, with their gradients and velocities (zeros before
/// the first step; null without momentum, in all of a call).
struct SgdRange {
  std::int64_t count = 0;
  const SgdFactors* factors = nullptr;
  const float* gradients = nullptr;
  float* velocities = nullptr;
  float* parameters = nullptr;
};

/// Parameters that a step of Adam treats alike; means and squares are zeros before the first step.
struct AdamRange {
  std::int64_t count = 0;
  const AdamFactors* factors = nullptr;
  const float* gradients = nullptr;
  float* means = nullptr;
  float* squares = nullptr;
  float* parameters = nullptr;
};

/// A matrix that Muon steps with.
struct MuonMatrix {
  std::int64_t count = 0;  // of elements, in so many rows
  std::int64_t rows = 1;
  const SgdFactors* factors = nullptr;
  const float* gradients = nullptr;
  float* velocities = nullptr;
  float* parameters = nullptr;
  ArrayRef x;  // its direction, then made orthogonal; of one type in all of a call
  float* norm_factor = nullptr;  // [1]; null: the matrix keeps its norm
};

/// Values, and an average that follows them.
struct AveragedValues {
  std::int64_t count = 0;
  const float* values = nullptr;
  float* average = nullptr;
};

/// Factors change from step to step, so they lie in the backend's memory: a step that was recorded
/// (Backend::record) reads those of the day. optimizer_formulas.h makes them.
/// So does the word `skip` (null: never): if it is not 0, steps leave parameters and state alone.
/// What takes a list does all of it at once: its arrays do not overlap.
class OptimizerKernels {
 public:
  virtual ~OptimizerKernels() = default;

  /// One step of stochastic gradient descent as PyTorch defines it, for parameters p with gradients
  /// g and velocities v:
  ///   d = g + weight_decay p;  v = momentum v + d;  d = nesterov ? d + momentum v : v
  ///   p = p - learning_rate d
  virtual void sgd_step(std::span<const SgdRange> ranges, const float* skip_or_null,
                        bool nesterov) = 0;

  /// One step of Adam as PyTorch defines it, for parameters p with gradients g, means m and squares
  /// s:
  ///   p = decoupled_decay ? p (1 - learning_rate weight_decay) : p
  ///   d = decoupled_decay ? g : g + weight_decay p
  ///   m = beta1 m + (1 - beta1) d;  s = beta2 s + (1 - beta2) d^2
  ///   p = p - learning_rate / correction1 * m / (sqrt(s / correction2) + eps)
  virtual void adam_step(std::span<const AdamRange> ranges, const float* skip_or_null) = 0;

  // --- Muon; the norm |u| is Frobenius' ---
  /// What comes before the iterations, for gradients g and velocities v:
  ///   v = momentum v + g;  u = nesterov ? g + momentum v : v;  x = u / (|u| + 1e-7)
  ///   norm_factor = sqrt(rows) / |p|
  /// (zeros for norms of 0). If the step is skipped x may be anything.
  virtual void muon_directions(std::span<const MuonMatrix> matrices, const float* skip_or_null,
                               bool nesterov) = 0;
  /// What comes behind them:  p = norm_factor p;  p = p - rate (x + decay p).
  virtual void muon_step(std::span<const MuonMatrix> matrices, const float* skip_or_null) = 0;

  // --- loss scaling; state and step lie in the backend's memory, formulas in loss_scaling.h ---
  /// gradient[0] = scaled_loss_gradient(*state, *step), not_finite[0] = 0.
  virtual void begin_scaled_step(const LossScaleState* state, const LossScaleStep* step,
                                 float* gradient, float* not_finite) = 0;
  /// Multiplies gradients by unscaling_factor(*state, *step); not_finite[0] = 1 if one of the
  /// results is not finite.
  virtual void unscale(std::int64_t count, const LossScaleState* state, const LossScaleStep* step,
                       float* gradients, float* not_finite) = 0;
  /// *state = next_loss_scale(rule, *not_finite == 0, *state).
  virtual void move_loss_scale(const LossScaleRule& rule, const float* not_finite,
                               LossScaleState* state) = 0;

  /// average = average + (1 - decay) (values - average), for all of them at once.
  virtual void move_averages(std::span<const AveragedValues> averages, double decay) = 0;

  /// sum[0] += the sum of the squares, in double, in the backend's memory.
  virtual void add_squares(std::int64_t count, const float* values, double* sum) = 0;
  /// values *= clip_factor(sqrt(squares[0]), max_norm); squares lies in the backend's memory.
  virtual void clip_norm(std::int64_t count, const double* squares, double max_norm,
                         float* values) = 0;

  /// The sum of the squares, in double, as a host value: waits for the device.
  virtual double sum_of_squares(std::int64_t count, const float* values) = 0;
};

}  // namespace dlaunch::nn
