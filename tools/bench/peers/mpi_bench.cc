// Times an MPI library as dbench times ours: the same protocol (tools/bench/measure), the same
// values.
//
//   mpirun -n 4 mpi_bench allreduce 1000,10000 [seconds per count]    (or another collective)
//   mpirun -n 4 mpi_bench barrier - [seconds]
//   mpirun -n 2 mpi_bench roundtrip|stream 8,4096 [seconds]       (counts are bytes)
//
// Rank 0 prints one JSON object per line.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tools/bench/measure/memory.h"
#include "tools/bench/measure/point_to_point.h"
#include "tools/bench/measure/ranks.h"
#include "tools/bench/measure/repeat.h"
#include "tools/bench/measure/statistics.h"
#include "tools/bench/peers/mpi_collective.h"

namespace dlaunch::bench {
namespace {

class MpiRanks : public Ranks {
 public:
  MpiRanks() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void maximum(std::span<double> values) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
  }

 private:
  int rank_ = 0;
  int size_ = 0;
};

class MpiLink : public Link {
 public:
  explicit MpiLink(int peer) : peer_(peer) {}
  void send(const std::byte* data, std::size_t bytes) override {
    MPI_Send(data, static_cast<int>(bytes), MPI_BYTE, peer_, 0, MPI_COMM_WORLD);
  }
  void receive(std::byte* data, std::size_t bytes) override {
    MPI_Recv(data, static_cast<int>(bytes), MPI_BYTE, peer_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

 private:
  int peer_;
};

struct Measured {
  std::vector<double> seconds;
  std::vector<double> batches;
  double error = 0;
};

constexpr std::size_t kLongestBatched = 16384;  // elements: above, a batch tells nothing new

int length_of_batch(const std::vector<double>& seconds) {
  return std::clamp(static_cast<int>(10e-3 / summarize(seconds).median), 2, 1000);
}

Measured time_collective(Ranks& ranks, MpiCollective& collective, const Limits& limits) {
  Measured measured;
  const auto run = [&] { collective.run(); };
  std::uint64_t last = 0;
  measured.seconds =
      repeat(ranks, limits,
             {.prepare = [&](std::uint64_t repetition) { collective.prepare(repetition); },
              .run = run,
              .check = [&](std::uint64_t repetition) { last = repetition; }});
  measured.error = collective.error(last);
  ranks.maximum({&measured.error, 1});
  if (collective.count() <= kLongestBatched) {
    collective.clear();
    measured.batches =
        repeat_batches(ranks, length_of_batch(measured.seconds), limits.seconds / 4, run);
  }
  return measured;
}

Measured barrier(Ranks& ranks, const Limits& limits) {
  const auto run = [&] { ranks.barrier(); };
  Measured measured;
  measured.seconds = repeat(ranks, limits, {.prepare = {}, .run = run, .check = {}});
  measured.batches = repeat_batches(ranks, length_of_batch(measured.seconds), limits.seconds, run);
  return measured;
}

void print(const std::string& operation, const Ranks& ranks, std::size_t count, std::size_t bytes,
           const Measured& measured, double peak) {
  const Summary one = summarize(measured.seconds);
  std::printf(
      "{\"operation\": \"%s\", \"ranks\": %d, \"count\": %zu, \"bytes\": %zu, \"us\": %.3f, "
      "\"us_p10\": %.3f, \"us_p90\": %.3f, \"repetitions\": %zu, ",
      operation.c_str(), ranks.size(), count, bytes, one.median * 1e6, one.p10 * 1e6, one.p90 * 1e6,
      one.repetitions);
  if (!measured.batches.empty()) {
    std::printf("\"batch_us\": %.3f, ", summarize(measured.batches).median * 1e6);
  }
  std::printf("\"error\": %.3g, \"peak_mib\": %.1f}\n", measured.error, peak);
  std::fflush(stdout);
}

std::vector<std::size_t> parse_counts(const char* text) {
  std::vector<std::size_t> counts;
  for (char* rest = nullptr; *text != '\0'; text = *rest == ',' ? rest + 1 : rest) {
    counts.push_back(std::strtoull(text, &rest, 10));
    if (rest == text) return {0};
  }
  return counts;
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "mpi_bench: COLLECTIVE|barrier|roundtrip|stream COUNTS [SECONDS]\n");
    return 2;
  }
  const std::string operation = argv[1];
  Limits limits;
  if (argc > 3) limits.seconds = std::strtod(argv[3], nullptr);
  MpiRanks ranks;
  for (std::size_t count : parse_counts(argv[2])) {
    reset_peak();
    Measured measured;
    std::size_t bytes = count;
    if (const MpiKind* kind = mpi_kind(operation)) {
      MpiCollective collective(ranks, *kind, count);
      count = collective.count();
      bytes = count * sizeof(float);
      measured = time_collective(ranks, collective, limits);
    } else if (operation == "barrier") {
      bytes = 0;
      measured = barrier(ranks, limits);
    } else {
      MpiLink link(1 - ranks.rank());
      measured.seconds = operation == "stream" ? streams(ranks, link, count, limits)
                                               : round_trips(ranks, link, count, limits);
    }
    double peak = peak_mib();
    ranks.maximum({&peak, 1});
    if (ranks.rank() == 0) print(operation, ranks, count, bytes, measured, peak);
  }
  return 0;
}

}  // namespace
}  // namespace dlaunch::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = dlaunch::bench::run(argc, argv);
  MPI_Finalize();
  return code;
}
