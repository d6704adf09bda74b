// Batch normalisation whose statistics are those of the global batch, all ranks' shares together.
#pragma once

#include <string>

#include "nn/layers/batch_norm.h"

namespace dlaunch::nn {

/// Equal to one BatchNorm over the joined batch, for any split of it, empty shares included.
///
/// In training, forward makes exactly one collective (a sum all-reduce of 2 C + 1 doubles) and
/// backward exactly one (2 C doubles), on every micro-batch, so all ranks must run both, in the
/// same order; a rank without samples passes an empty batch. In evaluation there is none, nor in a
/// world of one. The gradients of weight and bias are the local ones and go through gradient
/// averaging like any other.
///
/// A global batch with a single value per channel is an Error, on all ranks. A collective that
/// fails throws StatusError, whose text begins with the layer's name. The communicator must outlive
/// the layer and the graphs made by it, and be used by the thread that trains; it should not be one
/// whose blocking calls wait for large transfers.
class SyncBatchNorm : public BatchNorm {
 public:
  /// `name` is the layer's place in the network, for errors: "layer1.0.bn1".
  SyncBatchNorm(Backend& backend, std::int64_t channels, Communicator& group,
                BatchNormOptions options = {}, const std::string& name = "");
};

}  // namespace dlaunch::nn
