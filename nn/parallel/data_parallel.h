// DataParallel: trains a network on all ranks of a communicator alike, in a loop of one's own:
//
//   DataParallel parallel(network, *world);
//   Sgd optimizer(parallel.parameters(), {.momentum = 0.9});
//   for (each step) {
//     for (each micro-batch) {
//       const Tensor loss = cross_entropy(network(images), labels);  // a sum over the samples
//       parallel.backward(loss, samples, last);
//     }
//     const auto report = parallel.step(optimizer, learning_rate);
//   }
//
// Gradients are summed over the ranks while backward goes on (GradientReducer), and divided by the
// number of samples that all ranks had together: the result is that of one process with all
// samples, however they are spread. A rank that runs out of data goes on with empty batches, of
// shape [0, ...], until a step of all ranks had no sample. Ranks may have different numbers of
// micro-batches in a step, unless their network has layers that communicate (SyncBatchNorm).
//
// One thread on each rank; all ranks make the same calls. A network on a GPU takes a communicator
// of the GPU's memory (make_cuda_communicator), and what the host waits for there is the loss of
// each micro-batch. Throws Error for calls that make no sense, StatusError where other ranks are
// lost or disagree.
#pragma once

#include <exception>
#include <functional>
#include <optional>

#include "nn/core/flat_parameters.h"
#include "nn/optim/gradient_clipping.h"
#include "nn/optim/optimizer.h"
#include "nn/parallel/flat_ranges.h"
#include "runtime/comm/communicator.h"
#include "runtime/parallel/gradient_reducer.h"

namespace dlaunch::nn {

struct DataParallelOptions {
  /// Not kShard, for which an optimizer has to be in parts (ShardedOptimizer). On a GPU gradients
  /// are not compressed: kAllReduce.
  GradientReducerOptions gradients;
  /// Bound of the norm of a step's mean gradients; 0: none. Parameters are then updated when all
  /// gradients are summed, else part after part.
  double clip_norm = 0;
  /// If not empty: called once in each step that has samples, with the mean gradients (one array;
  /// parameters().views says where each parameter's lie) before they are clipped. It may change
  /// them, on all ranks alike. Parameters are then updated when all gradients are summed, too.
  std::function<void(Tensor& gradients)> on_mean_gradients = nullptr;
};

/// Of one step and all ranks; the same on all of them.
struct DataParallelReport {
  double samples = 0;        // 0: nothing was updated
  double loss = 0;           // mean over the samples
  double gradient_norm = 0;  // before it was clipped; 0 without clip_norm
};

class DataParallel {
 public:
  /// Flattens the network's parameters (flatten_parameters) and gives all ranks those of rank 0,
  /// and its buffers. Blocks. Both must outlive it; afterwards the network has its parameters to
  /// itself again (unflatten_parameters), and optimizers of them are of no use. Batch norms that
  /// are not synchronised keep running statistics of their own on every rank from then on.
  DataParallel(Module& network, Communicator& world, DataParallelOptions options = {});
  /// While an exception leaves its scope, and between the last backward() of a step and its step():
  /// aborts `world`, in which the other ranks would wait for this one.
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// For the optimizer.
  const FlatParameters& parameters() const { return parameters_; }

  /// Adds the gradients of a micro-batch: `loss` is a sum over its `samples`. With the `last` one
  /// of a step on this rank gradients go to the other ranks, each as soon as it is final; all ranks
  /// have one.
  void backward(const Tensor& loss, double samples, bool last = true);

  /// Ends the step: mean gradients, clipped if they are to be, new parameters; then gradients are
  /// zero again.
  DataParallelReport step(Optimizer& optimizer, double learning_rate);

  /// Parameters without a gradient, and on which ranks (GradientReducer::unused).
  const std::vector<UnusedRange>& unused() const { return reducer_.unused(); }

 private:
  void check_parameters() const;
  void make_means(FlatSpan span, double scale);
  void finish_means(double scale);

  Communicator& world_;
  FlatParameters parameters_;
  const RangeIndex range_of_;
  GradientReducer reducer_;
  const std::function<void(Tensor&)> on_mean_gradients_;
  std::optional<GradientClipper> clipper_;
  const int exceptions_ = std::uncaught_exceptions();  // under way when it was made
  bool summing_ = false;                               // since the last micro-batch of a step
};

}  // namespace dlaunch::nn
