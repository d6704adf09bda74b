// CompressionMemory: the way of what PowerSGD still has to make good, on every rank, into
// checkpoints and back. Rank 0 holds everybody's for a moment while a checkpoint is read or
// written. A run that goes on with another number of ranks makes good the same sum.
//
// One thread, on every rank.
#pragma once

#include <vector>

#include "nn/checkpoint/named_tensors.h"
#include "runtime/comm/communicator.h"
#include "runtime/parallel/exchange_memory.h"

namespace dlaunch {

class CompressionMemory {
 public:
  /// Both must outlive it.
  CompressionMemory(nn::Backend& backend, Communicator& world) : backend_(backend), world_(world) {}

  /// Collective. Takes what each rank's reducer carries. Throws StatusError.
  void gather(const ExchangeMemory& own);
  /// Collective. What each rank is to go on with; empty if rank 0 has nothing. Throws StatusError.
  ExchangeMemory scatter();

  /// Rank 0: makes room for what the file holds of it. Throws nn::DataError if it holds some and
  /// the run does not `compress`.
  void prepare(const nn::SafetensorsFile& file, bool compress);
  /// Rank 0: all of it, under its names in checkpoints; none unless there was gather() or
  /// prepare().
  std::vector<nn::NamedTensor> tensors() const;
  void forget();

 private:
  nn::Backend& backend_;
  Communicator& world_;
  nn::Tensor errors_;   // f32 [ranks that wrote, gradients]
  nn::Tensor factors_;  // f32 [...]
  nn::Tensor random_;   // f64 [1]
};

}  // namespace dlaunch
