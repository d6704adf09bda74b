// Splits a loop among OpenMP's threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace dlaunch::nn::cpu {

/// Calls function(begin, end) for ranges that cover [0, count), one range per thread, each of at
/// least `grain` elements (so with little to do it all runs on the calling thread). The same ranges
/// for the same number of threads. What the function throws in one of them is thrown on.
///
/// All threads are asked to come, also where there is work for some of them only: of a smaller team
/// than the last one GCC's OpenMP ends the threads that are left over, and makes new ones for the
/// next larger one, which takes longer than most of these loops.
template <typename Function>
void parallel_ranges(std::int64_t count, std::int64_t grain, const Function& function) {
  const std::int64_t most = (count + grain - 1) / grain;
  const std::int64_t ranges = std::min<std::int64_t>(most, omp_get_max_threads());
  if (ranges <= 1) {
    if (count > 0) function(std::int64_t{0}, count);
    return;
  }
  const std::int64_t share = (count + ranges - 1) / ranges;
  std::exception_ptr failure;
#pragma omp parallel
  for (std::int64_t range = omp_get_thread_num(); range < ranges; range += omp_get_num_threads()) {
    const std::int64_t begin = std::min(count, share * range);
    const std::int64_t end = std::min(count, begin + share);
    try {
      if (begin < end) function(begin, end);
    } catch (...) {
#pragma omp critical(dlaunch_parallel_ranges)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace dlaunch::nn::cpu
