// Running statistics that batch norm, where it is not synchronised, has gathered on each rank.
#pragma once

#include <vector>

#include "nn/checkpoint/named_tensors.h"
#include "nn/core/module.h"
#include "runtime/comm/communicator.h"

namespace dlaunch {

/// Collective: gives the network of every rank the statistics of the images of all ranks, each rank
/// counting the same: the mean of the means, and the mean of the variances plus the variance of the
/// means between ranks. Waits for a device. Throws StatusError.
void merge_running_statistics(Communicator& world, const nn::Module& network);

/// Validated and saved are the statistics of all ranks together; each rank goes on with its own, so
/// that a run does not depend on how often that was done. Checkpoints have both. Where batch norm
/// is synchronised, or there is one rank, nothing here does anything.
///
/// One thread, on every rank.
class RankStatistics {
 public:
  /// All must outlive it.
  RankStatistics(nn::Backend& backend, Communicator& world, const nn::Module& network,
                 bool synchronised);

  /// Collective. merge_running_statistics() until restore(); once only, if called again.
  void merge();
  void restore();

  /// Collective, after merge(). Brings what each rank has to rank 0. Throws StatusError.
  void gather();
  /// Collective. Gives each rank its own of what rank 0 has read; if as many ranks wrote it. Else
  /// all go on with those of all, which is what the network has. Throws StatusError.
  void scatter();

  /// Rank 0: makes room for what the file holds. Throws nn::DataError if it is another network's.
  void prepare(const nn::SafetensorsFile& file);
  /// Rank 0: all of it, under its name in checkpoints; none unless there was gather() or prepare().
  std::vector<nn::NamedTensor> tensors() const;
  void forget() { all_ = {}; }

 private:
  nn::Backend& backend_;
  Communicator& world_;
  const nn::Module& network_;
  bool separate_;           // ranks have their own
  std::vector<float> own_;  // between merge() and restore()
  nn::Tensor all_;          // f32 [ranks that wrote, means and variances of all layers]
};

}  // namespace dlaunch
