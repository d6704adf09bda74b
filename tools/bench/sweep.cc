#include "tools/bench/sweep.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/bench/collective_run.h"
#include "tools/bench/measure/memory.h"
#include "tools/bench/measure/repeat.h"
#include "tools/bench/report.h"
#include "tools/bench/typed_values.h"
#include "tools/bench/world_ranks.h"

namespace dlaunch::bench {
namespace {

constexpr std::size_t kLongestBatched = std::size_t{64} << 10;  // bytes: above, it tells nothing
constexpr double kBatchSeconds = 10e-3;

std::optional<double> measure_batches(Ranks& ranks, CollectiveRun& run, const Limits& limits,
                                      double seconds_of_one) {
  run.clear();
  const int length = std::clamp(static_cast<int>(kBatchSeconds / seconds_of_one), 2, 1000);
  return summarize(repeat_batches(ranks, length, limits.seconds / 4, [&] { run.run(); })).median;
}

Cell measure(Communicator& world, const Options& options, Algorithm algorithm, std::size_t count) {
  WorldRanks ranks(world);
  reset_peak();
  CollectiveRun run(world, options, algorithm, count);
  std::uint64_t last = 0;
  double error = 0;
  const auto check = [&](std::uint64_t repetition) {
    last = repetition;
    if (options.verify) error = std::max(error, run.error(repetition));
  };
  const auto seconds =
      repeat(ranks, options.limits,
             {.prepare = [&](std::uint64_t repetition) { run.prepare(repetition); },
              .run = [&] { run.run(); },
              .check = check});
  if (!options.verify) error = run.error(last);
  double peak = peak_mib();
  ranks.maximum({&error, 1});
  ranks.maximum({&peak, 1});

  Cell cell{.algorithm = std::string(to_string(algorithm)),
            .count = run.count(),
            .bytes = run.count() * size_of(options.dtype),
            .seconds = summarize(seconds),
            .batch_seconds = {},
            .bus_factor = bus_factor(options.kind, world.size()),
            .error = error,
            .peak_mib = peak};
  if (cell.bytes <= kLongestBatched) {
    cell.batch_seconds = measure_batches(ranks, run, options.limits, cell.seconds.median);
  }
  return cell;
}

}  // namespace

bool run_sweep(Communicator& world, const Options& options) {
  const std::string operation(to_string(options.kind));
  const bool reports = world.rank() == 0;
  if (reports) print_head(options, operation, world.size());
  std::vector<Cell> cells;
  bool correct = true;
  for (const Algorithm algorithm : options.algorithms) {
    for (const std::size_t count : options.sweep()) {
      cells.push_back(measure(world, options, algorithm, count));
      if (reports) print_cell(cells.back());
      correct = correct && cells.back().error <= tolerance_of(options.dtype, world.size());
    }
  }
  if (reports && !options.json_path.empty()) {
    write_json(options, operation, world.size(), cells);
  }
  if (reports && !correct) {
    std::fprintf(stderr, "dbench: %s gave wrong results, see the column 'error'\n",
                 operation.c_str());
  }
  return correct;
}

}  // namespace dlaunch::bench
