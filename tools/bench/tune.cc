#include "tools/bench/tune.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "runtime/collective/cost_model.h"
#include "runtime/collective/reduction.h"
#include "tools/bench/measure/point_to_point.h"
#include "tools/bench/measure/statistics.h"
#include "tools/bench/report.h"
#include "tools/bench/world_ranks.h"

namespace dlaunch::bench {
namespace {

constexpr std::size_t kLongBytes = std::size_t{4} << 20;  // beyond a core's own cache
constexpr int kBurst = 16;

double median_of(std::vector<double> seconds) {
  return summarize(std::move(seconds)).median;
}

// Seconds per barrier of many.
double measure_barrier(Communicator& world, double seconds) {
  WorldRanks ranks(world);
  return median_of(repeat_batches(ranks, 200, seconds, [&] { ranks.barrier(); }));
}

// Seconds until the answer to `messages` small messages has come.
double measure_burst(Communicator& pair, int messages, double seconds) {
  WorldRanks ranks(pair);
  WorldLink link(pair, 1 - pair.rank());
  std::byte buffer[8] = {};
  return median_of(repeat_batches(ranks, 100, seconds, [&] {
    if (ranks.rank() == 0) {
      for (int i = 0; i < messages; ++i) link.send(buffer, sizeof buffer);
      link.receive(buffer, 1);
    } else {
      for (int i = 0; i < messages; ++i) link.receive(buffer, sizeof buffer);
      link.send(buffer, 1);
    }
  }));
}

MessageCost measure_messages(Communicator& pair, const Limits& limits) {
  WorldRanks ranks(pair);
  WorldLink link(pair, 1 - pair.rank());
  const double latency = median_of(round_trips(ranks, link, 8, limits)) / 2;
  const double one = measure_burst(pair, 1, limits.seconds);
  const double many = measure_burst(pair, kBurst, limits.seconds);
  const double stream = median_of(streams(ranks, link, kLongBytes, limits));
  // Most of it is the bytes' on any link: a latency that says otherwise was measured while other
  // programs had the cores.
  const double bytes = std::max(stream - 2 * latency, stream / 2);
  return {.latency = latency,
          .overhead = std::max(many - one, 0.0) / (kBurst - 1),
          .per_byte = bytes / static_cast<double>(kLongBytes)};
}

// Seconds per byte of `operation` over kLongBytes in memory that was just written.
template <typename Function>
double measure_per_byte(double seconds, Function&& operation) {
  using Clock = std::chrono::steady_clock;
  std::vector<float> from(kLongBytes / sizeof(float));
  std::vector<float> to(from.size());
  std::vector<double> times;
  const auto start = Clock::now();
  do {
    std::fill(from.begin(), from.end(), static_cast<float>(times.size()));
    const auto before = Clock::now();
    operation(to, from);
    times.push_back(std::chrono::duration<double>(Clock::now() - before).count());
  } while (std::chrono::duration<double>(Clock::now() - start).count() < seconds);
  return median_of(times) / static_cast<double>(kLongBytes);
}

void measure_memory(CostModel& model, double seconds) {
  model.copy_per_byte =
      measure_per_byte(seconds, [](std::vector<float>& to, const std::vector<float>& from) {
        std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
      });
  model.reduce_per_byte =
      measure_per_byte(seconds, [](std::vector<float>& to, const std::vector<float>& from) {
        accumulate(ReduceOp::kSum, DType::kF32, to.data(), from.data(), from.size());
      });
}

// By the ranks of `pair` (the others have none), one of them on its own for the memory.
void measure_pair(CostModel& model, Communicator& pair, bool shared, bool one_host,
                  const Limits& limits) {
  MessageCost& messages = shared     ? model.shared_message
                          : one_host ? model.host_message
                                     : model.network_message;
  messages = measure_messages(pair, limits);
  if (!shared) return;
  model.sync = measure_barrier(pair, limits.seconds);
  if (pair.rank() == 0) measure_memory(model, limits.seconds);
}

void write_model(const CostModel& model, const std::string& path) {
  const std::string text = to_json(model);
  std::fputs(text.c_str(), stdout);
  if (!path.empty()) write_text(path, text);
}

}  // namespace

void tune(Communicator& world, const JobEnvironment& job, const Options& options) {
  const bool shared = options.transport == "shm";
  const bool known = !options.model_path.empty() && std::filesystem::exists(options.model_path);
  CostModel model = known ? read_cost_model(options.model_path) : CostModel{};
  // Ranks 0 and 1, or of two hosts the first ones.
  const int partner = job.nodes > 1 ? job.local_world_size : 1;
  const bool measures = world.rank() == 0 || world.rank() == partner;
  const auto pair = world.split(measures ? 0 : -1, world.rank()).value_or_throw();
  if (pair) measure_pair(model, *pair, shared, job.nodes == 1, options.limits);
  throw_if_error(world.barrier());
  if (shared && world.size() > job.local_cores) {
    model.turn = measure_barrier(world, options.limits.seconds) / world.size();
  }
  if (world.rank() == 0) write_model(model, options.model_path);
}

}  // namespace dlaunch::bench
