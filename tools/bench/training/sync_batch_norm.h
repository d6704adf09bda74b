// dbench syncbn: what synchronised batch normalisation costs.
#pragma once

#include "runtime/comm/communicator.h"
#include "tools/bench/training/options.h"

namespace dlaunch::bench {

/// Collective. Times forward and backward of SyncBatchNorm, and of BatchNorm on the same local
/// rows, for all channels and batches asked for; a repetition as in measure/repeat.h, with fresh
/// values in input and gradient. Rank 0 prints.
void measure_sync_batch_norm(Communicator& world, const TrainingOptions& options);

}  // namespace dlaunch::bench
