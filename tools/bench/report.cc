#include "tools/bench/report.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace dlaunch::bench {
namespace {

constexpr double kMicro = 1e6;

double gigabytes_per_second(std::size_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0;
}

}  // namespace

void print_head(const Options& options, const std::string& operation, int ranks) {
  std::printf("# dbench %s: %d ranks on %ld cores, %s %s%s%s%s%s\n", operation.c_str(), ranks,
              sysconf(_SC_NPROCESSORS_ONLN), std::string(to_string(options.dtype)).c_str(),
              std::string(to_string(options.op)).c_str(),
              options.order == ReduceOrder::kRanks ? " in the order of ranks" : "",
              options.allocated ? ", buffers from allocate()" : "",
              options.transport.empty() ? "" : ", transport ", options.transport.c_str());
  std::printf(
      "# time: the slowest rank's, of one operation on fresh values after a barrier (median, 10 %% "
      "and 90 %%)\n"
      "# batch: of one operation of many back to back on the same values\n");
  std::printf("%-16s %10s %12s %11s %11s %11s %11s %8s %8s %9s %9s %6s\n", "algorithm", "count",
              "bytes", "time/us", "10%/us", "90%/us", "batch/us", "alg GB/s", "bus GB/s", "error",
              "peak/MiB", "reps");
  std::fflush(stdout);
}

void print_cell(const Cell& cell) {
  char batch[32] = "-";
  if (cell.batch_seconds) std::snprintf(batch, sizeof batch, "%.2f", *cell.batch_seconds * kMicro);
  const double bandwidth = gigabytes_per_second(cell.bytes, cell.seconds.median);
  std::printf("%-16s %10zu %12zu %11.2f %11.2f %11.2f %11s %8.3f %8.3f %9.2g %9.1f %6zu\n",
              cell.algorithm.c_str(), cell.count, cell.bytes, cell.seconds.median * kMicro,
              cell.seconds.p10 * kMicro, cell.seconds.p90 * kMicro, batch, bandwidth,
              bandwidth * cell.bus_factor, cell.error, cell.peak_mib, cell.seconds.repetitions);
  std::fflush(stdout);
}

void write_document(const std::string& path, const nlohmann::ordered_json& document) {
  std::ofstream file(path);
  file << document.dump(1) << "\n" << std::flush;
  if (!file.good()) throw std::runtime_error("cannot write " + path);
}

void write_json(const Options& options, const std::string& operation, int ranks,
                const std::vector<Cell>& cells) {
  nlohmann::ordered_json document;
  document["operation"] = operation;
  document["ranks"] = ranks;
  document["cores"] = sysconf(_SC_NPROCESSORS_ONLN);
  document["dtype"] = to_string(options.dtype);
  document["op"] = to_string(options.op);
  document["rank_order"] = options.order == ReduceOrder::kRanks;
  document["allocated"] = options.allocated;
  document["transport"] = options.transport.empty() ? "auto" : options.transport;
  for (const Cell& cell : cells) {
    nlohmann::ordered_json line;
    line["algorithm"] = cell.algorithm;
    line["count"] = cell.count;
    line["bytes"] = cell.bytes;
    line["us"] = cell.seconds.median * kMicro;
    line["us_p10"] = cell.seconds.p10 * kMicro;
    line["us_p90"] = cell.seconds.p90 * kMicro;
    line["repetitions"] = cell.seconds.repetitions;
    if (cell.batch_seconds) line["batch_us"] = *cell.batch_seconds * kMicro;
    line["bus_factor"] = cell.bus_factor;
    line["error"] = cell.error;
    line["peak_mib"] = cell.peak_mib;
    document["cells"].push_back(line);
  }
  write_document(options.json_path, document);
}

}  // namespace dlaunch::bench
