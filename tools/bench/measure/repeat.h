// The measuring protocol: how an operation of several ranks is repeated and timed.
//
// A repetition: every rank prepares (writes fresh values into its buffers), all meet at a barrier,
// and each rank reads its clock, runs the operation and reads its clock again. The time of the
// repetition is the longest of these durations. Preparing and checking are outside, behind another
// barrier: with more ranks than cores they would take the time of ranks that are not ready yet.
//
// A batch: after one barrier each rank runs the operation many times without a pause, as the OSU
// benchmarks do; its time is the slowest rank's, divided by the number of operations. Such times
// flatter: buffers stay as they are, in the cache, and ranks run ahead of each other.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tools/bench/measure/ranks.h"

namespace dlaunch::bench {

/// How long to go on: until there are `most` repetitions, or `seconds` are over and there are
/// `least`, or a quarter of them is over and the median is stable.
struct Limits {
  int warmup = 3;
  int least = 5;
  int most = 20000;
  double seconds = 1;
  double tolerance = 0.01;  // of the median

  bool exact() const { return least == most; }  // exactly so many
};

struct Operation {
  std::function<void(std::uint64_t repetition)> prepare;  // may be empty
  std::function<void()> run;
  std::function<void(std::uint64_t repetition)> check;  // may be empty; after run
  std::function<double()> seconds;  // how long run() took, by another clock; empty: the host's
};

/// Seconds of every repetition, the same on all ranks.
std::vector<double> repeat(Ranks& ranks, const Limits& limits, const Operation& operation);

/// Seconds per operation of `length` operations back to back: several batches within `seconds`.
std::vector<double> repeat_batches(Ranks& ranks, int length, double seconds,
                                   const std::function<void()>& run);

}  // namespace dlaunch::bench
