#include "tools/bench/measure/repeat.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "tools/bench/measure/statistics.h"

namespace dlaunch::bench {
namespace {

constexpr int kLeastForStability = 40;
constexpr std::size_t kMostBatches = 200;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double run_once(Ranks& ranks, const Operation& operation, std::uint64_t repetition) {
  if (operation.prepare) operation.prepare(repetition);
  ranks.barrier();
  const auto start = Clock::now();
  operation.run();
  const double seconds = operation.seconds ? operation.seconds() : seconds_since(start);
  ranks.barrier();  // who is ready early must not take a slower rank's core to prepare the next one
  if (operation.check) operation.check(repetition);
  return seconds;
}

// The longest time any rank has spent since `start`: ranks decide alike when to stop.
double common_seconds_since(Ranks& ranks, Clock::time_point start) {
  double seconds = seconds_since(start);
  ranks.maximum({&seconds, 1});
  return seconds;
}

}  // namespace

std::vector<double> repeat(Ranks& ranks, const Limits& limits, const Operation& operation) {
  const auto start = Clock::now();
  std::uint64_t repetition = 0;
  for (int i = 0; i < limits.warmup; ++i) run_once(ranks, operation, repetition++);

  std::vector<double> seconds;
  int round = std::min(limits.least, limits.most);
  while (round > 0) {
    const std::size_t before = seconds.size();
    for (int i = 0; i < round; ++i) seconds.push_back(run_once(ranks, operation, repetition++));
    ranks.maximum(std::span(seconds).subspan(before));

    const double used = common_seconds_since(ranks, start);
    const auto done = static_cast<int>(seconds.size());
    if (used >= limits.seconds) break;
    if (done >= kLeastForStability && used >= limits.seconds / 4 &&
        median_is_stable(seconds, limits.tolerance)) {
      break;
    }
    const double per_repetition = used / (done + limits.warmup);
    const int affordable = static_cast<int>((limits.seconds - used) / per_repetition) + 1;
    round = std::min({done, affordable, limits.most - done});
  }
  return seconds;
}

std::vector<double> repeat_batches(Ranks& ranks, int length, double seconds,
                                   const std::function<void()>& run) {
  const auto start = Clock::now();
  std::vector<double> result;
  double used = 0;
  do {
    ranks.barrier();
    const auto batch_start = Clock::now();
    for (int i = 0; i < length; ++i) run();
    double batch = seconds_since(batch_start) / length;
    ranks.maximum({&batch, 1});
    result.push_back(batch);
    used = common_seconds_since(ranks, start);
  } while (used < seconds && result.size() < kMostBatches);
  return result;
}

}  // namespace dlaunch::bench
