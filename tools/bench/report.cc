#include "tools/bench/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "runtime/base/descriptor.h"
#include "runtime/base/json_reader.h"
#include "runtime/base/status.h"

namespace dlaunch::bench {
namespace {

constexpr double kMicro = 1e6;

double gigabytes_per_second(std::size_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0;
}

// What the operands are, as far as the operation has any.
std::string describe_operands(const Options& options) {
  if (options.kind == CollectiveKind::kBarrier) return "";
  std::string text = ", " + std::string(to_string(options.dtype));
  if (reduces(options.kind)) text += " " + std::string(to_string(options.op));
  if (options.order == ReduceOrder::kRanks) text += " in the order of ranks";
  return text;
}

}  // namespace

std::string counted(std::size_t number, const char* what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

void print_head(const Options& options, const std::string& operation, int ranks) {
  const auto cores = static_cast<std::size_t>(sysconf(_SC_NPROCESSORS_ONLN));
  std::printf("# dbench %s: %s on %s%s%s%s%s\n", operation.c_str(),
              counted(static_cast<std::size_t>(ranks), "rank").c_str(),
              counted(cores, "core").c_str(), describe_operands(options).c_str(),
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

void refuse_unless_writable(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.is_open() && errno == ENOENT) {
    constexpr mode_t kLikeAnyFile = 0666;
    file = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kLikeAnyFile));
    if (file.is_open()) ::unlink(path.c_str());
  }
  if (!file.is_open())
    throw ConfigError(option + ": " +
                      Status::from_errno("cannot write " + path, errno).to_string());
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file.good())
    throw std::runtime_error(Status::from_errno("cannot write " + path, errno).to_string());
}

void write_document(const std::string& path, const nlohmann::ordered_json& document) {
  write_text(path, document.dump(1) + "\n");
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
