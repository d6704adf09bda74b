#include "tools/bench/pair.h"

#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/bench/measure/point_to_point.h"
#include "tools/bench/measure/statistics.h"
#include "tools/bench/references/flag_link.h"
#include "tools/bench/references/socket_link.h"
#include "tools/bench/report.h"
#include "tools/bench/world_ranks.h"

namespace dlaunch::bench {
namespace {

struct Way {
  std::string name;
  Link* link = nullptr;
  std::size_t most_bytes = SIZE_MAX;
};

struct PairCell {
  std::string way;
  std::size_t bytes = 0;
  std::optional<Summary> round_trip;
  Summary one_way;
};

// Copying fresh bytes within rank 0, or within both ranks at the same time.
Summary measure_memcpy(Ranks& ranks, std::size_t bytes, bool both, const Limits& limits) {
  std::vector<std::byte> from(bytes);
  std::vector<std::byte> to(bytes);
  const bool copies = both || ranks.rank() == 0;
  const Operation operation{.prepare =
                                [&](std::uint64_t repetition) {
                                  if (copies)
                                    std::memset(from.data(), static_cast<int>(repetition), bytes);
                                },
                            .run =
                                [&] {
                                  if (copies) std::memcpy(to.data(), from.data(), bytes);
                                },
                            .check = {}};
  return summarize(repeat(ranks, limits, operation));
}

void print_cell(const PairCell& cell) {
  char round_trip[32] = "-";
  if (cell.round_trip) {
    std::snprintf(round_trip, sizeof round_trip, "%.3f", cell.round_trip->median * 1e6);
  }
  std::printf("%12zu  %-16s %14s %12.2f %12.2f %12.2f %9.3f\n", cell.bytes, cell.way.c_str(),
              round_trip, cell.one_way.median * 1e6, cell.one_way.p10 * 1e6, cell.one_way.p90 * 1e6,
              static_cast<double>(cell.bytes) / cell.one_way.median * 1e-9);
  std::fflush(stdout);
}

void write_json(const Options& options, const std::vector<PairCell>& cells) {
  nlohmann::ordered_json document{{"operation", "p2p"}, {"ranks", 2}};
  for (const PairCell& cell : cells) {
    nlohmann::ordered_json line{{"way", cell.way}, {"bytes", cell.bytes}};
    const auto add = [&line](const std::string& name, const Summary& summary) {
      line[name] = summary.median * 1e6;
      line[name + "_p10"] = summary.p10 * 1e6;
      line[name + "_p90"] = summary.p90 * 1e6;
    };
    if (cell.round_trip) add("round_trip_us", *cell.round_trip);
    add("one_way_us", cell.one_way);
    document["cells"].push_back(line);
  }
  write_document(options.json_path, document);
}

}  // namespace

void run_pair(Communicator& world, const Options& options) {
  WorldRanks ranks(world);
  WorldLink own(world, 1 - world.rank());
  SocketLink spinning(world, SocketLink::Waiting::kSpinning);
  SocketLink blocking(world, SocketLink::Waiting::kBlocking);
  FlagLink flag(world);
  const Way ways[] = {{"dlaunch", &own},
                      {"socket_spinning", &spinning},
                      {"socket_blocking", &blocking},
                      {"shared_flag", &flag, FlagLink::kMostBytes}};
  const bool reports = world.rank() == 0;
  if (reports) {
    std::printf(
        "# dbench p2p: two ranks%s%s\n"
        "# round trip: there and back, of many; one way: fresh bytes until the receiver's answer "
        "is back (median, 10 %% and 90 %%)\n%12s  %-16s %14s %12s %12s %12s %9s\n",
        options.transport.empty() ? "" : ", transport ", options.transport.c_str(), "bytes", "way",
        "round trip/us", "one way/us", "10%/us", "90%/us", "GB/s");
  }
  std::vector<PairCell> cells;
  const auto report = [&](PairCell cell) {
    if (reports) print_cell(cell);
    cells.push_back(std::move(cell));
  };
  for (const std::size_t bytes : options.sweep()) {
    for (const Way& way : ways) {
      if (bytes > way.most_bytes || (way.link == &own && options.only_references)) continue;
      report({.way = way.name,
              .bytes = bytes,
              .round_trip = summarize(round_trips(ranks, *way.link, bytes, options.limits)),
              .one_way = summarize(streams(ranks, *way.link, bytes, options.limits))});
    }
    for (const bool both : {false, true}) {
      report({.way = both ? "memcpy_both" : "memcpy",
              .bytes = bytes,
              .round_trip = {},
              .one_way = measure_memcpy(ranks, bytes, both, options.limits)});
    }
  }
  if (reports && !options.json_path.empty()) write_json(options, cells);
}

}  // namespace dlaunch::bench
