// Running statistics that batch norm, where it is not synchronised, has gathered on each rank.
#pragma once

#include "nn/core/module.h"
#include "runtime/comm/communicator.h"

namespace dlaunch {

/// Collective: gives the network of every rank the statistics of the images of all ranks, each rank
/// counting the same: the mean of the means, and the mean of the variances plus the variance of the
/// means between ranks. Waits for a device. Throws StatusError.
void merge_running_statistics(Communicator& world, const nn::Module& network);

}  // namespace dlaunch
