// dbench device: what a GPU does at best, to compare training and normalisation with.
#pragma once

#include "tools/bench/training/bench_device.h"

namespace dlaunch::bench {

/// Bytes read and written per second by a copy of `bytes` within the device's memory.
double copy_rate(BenchDevice& device, std::size_t bytes, const Limits& limits);

/// Collective. Copies, products of large matrices in f32 and bf16, and on several ranks small
/// all_reduces in a line: between processes that share a GPU each is a turn. Rank 0 prints.
void measure_device(BenchDevice& device, const TrainingOptions& options);

}  // namespace dlaunch::bench
