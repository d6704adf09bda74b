#include "tools/bench/machine.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/bench/measure/repeat.h"
#include "tools/bench/measure/statistics.h"
#include "tools/bench/references/peak.h"
#include "tools/bench/report.h"
#include "tools/bench/world_ranks.h"

namespace dlaunch::bench {
namespace {

constexpr double kGiga = 1e9;
constexpr std::uint64_t kRounds = 200'000;  // of a kernel in a repetition: some hundred µs

struct Rate {
  std::string what;
  std::string how;
  std::string unit;
  double work = 0;  // of one rank in a repetition
  Summary seconds;
};

/// Of each of the two buffers of a rank: all together several times the last cache, which a virtual
/// machine may give as that of its whole host; but an eighth of the memory at most.
std::size_t default_bytes(int ranks) {
  const auto of_system = [](int name) {
    return static_cast<std::size_t>(std::max(sysconf(name), 0L));
  };
  const auto share = static_cast<std::size_t>(ranks);
  const std::size_t least = std::size_t{64} << 20;
  const std::size_t most = of_system(_SC_PHYS_PAGES) * of_system(_SC_PAGESIZE) / 16 / share;
  return std::min(most, std::max(least, 4 * of_system(_SC_LEVEL3_CACHE_SIZE) / share));
}

/// In independent sums: additions of a single one wait for each other, and memory may be faster.
std::uint64_t sum_of(const std::vector<std::uint64_t>& values) {
  std::array<std::uint64_t, 8> sums{};
  const std::size_t whole = values.size() - values.size() % sums.size();
  for (std::size_t i = 0; i < whole; i += sums.size()) {
#pragma GCC unroll 8  // else GCC keeps the sums in memory
    for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += values[i + lane];
  }
  const auto rest = values.begin() + static_cast<std::ptrdiff_t>(whole);
  return std::accumulate(rest, values.end(),
                         std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}));
}

std::vector<Rate> measure_rates(WorldRanks& ranks, const Options& options) {
  std::vector<Rate> rates;
  const auto measure = [&](Rate rate, const std::function<void()>& run) {
    rate.seconds =
        summarize(repeat(ranks, options.limits, {.prepare = {}, .run = run, .check = {}}));
    rates.push_back(std::move(rate));
  };
  for (const PeakKernel& kernel : peak_kernels()) {
    measure({.what = kernel.type,
             .how = kernel.instructions,
             .unit = "GFLOP/s",
             .work = kernel.flop_per_round * static_cast<double>(kRounds),
             .seconds = {}},
            [&] { kernel.run(kRounds); });
  }
  const std::size_t wanted = options.bytes > 0 ? options.bytes : default_bytes(ranks.size());
  std::vector<std::uint64_t> from(std::max(wanted / sizeof(std::uint64_t), std::size_t{1}), 1);
  std::vector<std::uint64_t> to(from.size(), 2);
  const auto bytes = static_cast<double>(from.size() * sizeof from[0]);
  volatile std::uint64_t sum = 0;  // so that reading is not left out
  measure({.what = "read", .how = "sum", .unit = "GB/s", .work = bytes, .seconds = {}},
          [&] { sum = sum_of(from); });
  measure({.what = "copy", .how = "memcpy", .unit = "GB/s", .work = 2 * bytes, .seconds = {}},
          [&] { std::memcpy(to.data(), from.data(), from.size() * sizeof from[0]); });
  return rates;
}

}  // namespace

void measure_machine(Communicator& world, const Options& options) {
  WorldRanks ranks(world);
  const std::vector<Rate> rates = measure_rates(ranks, options);
  if (world.rank() != 0) return;
  std::printf("# %s together, from the slowest one's time; copied bytes count twice\n",
              counted(static_cast<std::size_t>(world.size()), "rank").c_str());
  std::printf("%6s  %-12s %12s %12s %12s\n", "what", "how", "median", "10%", "90%");
  nlohmann::ordered_json document{{"operation", "machine"}, {"ranks", world.size()}};
  for (const Rate& rate : rates) {
    // The 10 % of the rate is the 90 % of the time.
    const auto per_second = [&](double seconds) {
      return rate.work * world.size() / seconds / kGiga;
    };
    std::printf("%6s  %-12s %12.1f %12.1f %12.1f %s\n", rate.what.c_str(), rate.how.c_str(),
                per_second(rate.seconds.median), per_second(rate.seconds.p90),
                per_second(rate.seconds.p10), rate.unit.c_str());
    document["cells"].push_back({{"what", rate.what},
                                 {"how", rate.how},
                                 {"unit", rate.unit},
                                 {"rate", per_second(rate.seconds.median)},
                                 {"rate_p10", per_second(rate.seconds.p90)},
                                 {"rate_p90", per_second(rate.seconds.p10)}});
  }
  if (!options.json_path.empty()) write_document(options.json_path, document);
}

}  // namespace dlaunch::bench
