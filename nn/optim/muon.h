// Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024): the step
// of a matrix is its momentum, made orthogonal by a few Newton-Schulz iterations. Convolution
// filters count as matrices [out, height * width * in]. Everything else, and the last matrix (the
// classifier), is left to SGD with momentum.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/optim/sgd.h"

namespace dlaunch::nn {

/// How large the step of a matrix [rows, columns] is.
enum class MuonScale {
  kOriginal,   // times sqrt(max(1, rows / columns)): torch.optim.Muon's "original"
  kMatchAdam,  // times 0.2 sqrt(max(rows, columns)): its "match_rms_adamw"
  kNormalise,  // first the matrix is scaled to norm sqrt(rows), then a plain step: airbench's
};

struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  int iterations = 5;
  MuonScale scale = MuonScale::kOriginal;
  bool bf16 = false;         // the iterations are made in bf16
  double weight_decay = 0;   // decoupled: p = p (1 - learning_rate weight_decay)
  SgdOptions others;         // for all that is no matrix, and the classifier
  double others_factor = 1;  // of the learning rate, for these
};

/// v = momentum v + g;  u = nesterov ? g + momentum v : v;  p = p - learning_rate scale
/// orthogonal(u)
class Muon : public Optimizer {
 public:
  /// Error unless momentum is in [0, 1), there is an iteration, numbers are not negative, and
  /// `others` are options that Sgd takes.
  Muon(FlatParameters parameters, MuonOptions options);

  void begin_step(double learning_rate) override;
  void update(std::int64_t begin, std::int64_t end) override;
  bool needs_whole_parameters() const override { return true; }
  /// "velocity.NAME", of what has momentum.
  std::vector<NamedTensor> state() const override;
  std::vector<NamedTensor> flat_state() const override;
  std::size_t state_bytes() const override;

 private:
  /// Matrices of one shape.
  struct Batch {
    std::vector<std::size_t> members;  // of matrices_
    Tensor x;                          // [members, rows, columns]: their directions, then steps
  };

  void update_matrices(std::int64_t begin, std::int64_t end);
  void update_others(std::int64_t begin, std::int64_t end);
  std::vector<Batch> batches_in(std::int64_t begin, std::int64_t end) const;
  std::vector<MuonMatrix> matrices_of(const std::vector<Batch>& batches) const;

  MuonOptions options_;
  std::vector<FlatView> matrices_;  // those of one shape are neighbours
  std::vector<FlatView> others_;
  std::vector<OptimizerRange> other_ranges_;
  Tensor velocities_;                // of both
  FactorTable<SgdFactors> factors_;  // of the matrices, then of other_ranges_
  Tensor norm_factors_;              // of each matrix; undefined if they keep their norms
};

/// `iterations` of X <- a X + (b A + c A A) X, A = X X^T, with a = 3.4445, b = -4.7750, c = 2.0315,
/// for matrices x [count, rows, columns], f32 or bf16, whose Frobenius norms are 1: their singular
/// values end between about 0.7 and 1.2. All X, A and b A + c A A are of that type; sums of
/// products are f32.
Tensor newton_schulz(Tensor x, int iterations);

}  // namespace dlaunch::nn
