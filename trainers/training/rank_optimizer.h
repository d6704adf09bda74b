// RankOptimizer: the optimizer of one rank, for all parameters or, where gradients are sharded, for
// this rank's parts of them (ZeRO stage 1); and the way of its state into checkpoints and back,
// which are the same for both and serve any number of ranks.
//
// Sharded, it is known in the first step only what is whose: state is made then. Rank 0 holds the
// whole state for a moment while a checkpoint is read or written.
//
// One thread, on every rank. Throws StatusError.
#pragma once

#include <memory>
#include <vector>

#include "nn/checkpoint/named_tensors.h"
#include "nn/optim/make_optimizer.h"
#include "nn/optim/sharded_optimizer.h"
#include "runtime/comm/communicator.h"
#include "runtime/parallel/gradient_reducer.h"

namespace dlaunch {

class RankOptimizer {
 public:
  /// `world` must outlive it.
  RankOptimizer(nn::FlatParameters parameters, const nn::OptimizerOptions& options, bool sharded,
                Communicator& world);

  /// `stem_rate` is the learning rate of ParameterKind::kStem.
  void begin_step(double learning_rate, double stem_rate);
  /// As nn::Optimizer's. Before the first step.
  void skip_when(nn::Tensor word);
  /// Updates a part that `reducer` hands out. The first one is collective where it is sharded.
  void update(FlatSpan span, const GradientReducer& reducer);
  /// Bytes of state on this rank.
  std::size_t state_bytes() const;

  /// State that every rank has, under its names in checkpoints: none if it is sharded.
  std::vector<nn::NamedTensor> common_state() const;
  /// Rank 0, sharded: the whole state; zeros, unless gather() was called before. What is put there
  /// goes to the ranks in the first step, if all have called restored(). Empty if it is not
  /// sharded.
  std::vector<nn::NamedTensor> whole_state();
  void restored() { restored_ = true; }
  /// Collective. Sharded: fills whole_state() from the ranks' parts.
  void gather(const GradientReducer& reducer);
  /// Gives the memory of whole_state() back.
  void forget_whole() { whole_.reset(); }

 private:
  void begin_step_of(nn::Optimizer& optimizer) const;
  void make_parts(const GradientReducer& reducer);
  void scatter(const std::vector<FlatSpan>& spans);

  nn::FlatParameters parameters_;
  nn::OptimizerOptions options_;
  Communicator& world_;
  double learning_rate_ = 0;
  double stem_rate_ = 0;
  nn::Tensor skip_;
  std::unique_ptr<nn::Optimizer> optimizer_;     // not sharded
  std::unique_ptr<nn::ShardedOptimizer> parts_;  // sharded, from the first step on
  std::unique_ptr<nn::Optimizer> whole_;         // rank 0, sharded: for a moment
  bool restored_ = false;
};

}  // namespace dlaunch
