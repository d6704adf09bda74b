// dbench train: how fast a configuration of dtrain trains, by dtrain's own training loop.
#pragma once

#include "runtime/comm/communicator.h"
#include "tools/bench/training/options.h"

namespace dlaunch::bench {

/// Collective. Trains a few steps and prints, on rank 0, images per second over all ranks, the
/// times of the steps, and the memory of the largest rank. Unless asked for the configuration's own
/// data the images are built-in ones of the same shape and number of classes, prepared as the
/// configuration says. Throws what Trainer throws.
void measure_training(Communicator& world, const TrainingOptions& options);

}  // namespace dlaunch::bench
