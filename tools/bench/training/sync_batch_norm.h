// dbench syncbn: what synchronised batch normalisation costs.
#pragma once

#include "tools/bench/training/bench_device.h"

namespace dlaunch::bench {

/// Collective. Times forward and backward of SyncBatchNorm, and of BatchNorm on the same local
/// rows, for all channels and batches asked for; a repetition as in measure/repeat.h, on the CPU
/// with fresh values in input and gradient. On a GPU it also tells how long the bytes that must
/// move take by a copy within the device's memory. Rank 0 prints.
void measure_sync_batch_norm(BenchDevice& device, const TrainingOptions& options);

}  // namespace dlaunch::bench
