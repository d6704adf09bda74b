#include "tools/bench/measure/point_to_point.h"

#include <algorithm>
#include <cstring>

namespace dlaunch::bench {
namespace {

// Round trips of a batch: some 2 ms worth, known after a first batch of 20.
int batch_length(double seconds_of_one) {
  return std::clamp(static_cast<int>(2e-3 / seconds_of_one), 1, 10000);
}

}  // namespace

std::vector<double> round_trips(Ranks& ranks, Link& link, std::size_t bytes, const Limits& limits) {
  std::vector<std::byte> buffer(bytes, std::byte{1});
  const auto run = [&] {
    if (ranks.rank() == 0) link.send(buffer.data(), bytes);
    link.receive(buffer.data(), bytes);
    if (ranks.rank() != 0) link.send(buffer.data(), bytes);
  };
  const double first = repeat_batches(ranks, 20, 0, run).front();
  if (limits.exact()) return repeat_batches(ranks, limits.most, 0, run);
  return repeat_batches(ranks, batch_length(first), limits.seconds, run);
}

std::vector<double> streams(Ranks& ranks, Link& link, std::size_t bytes, const Limits& limits) {
  std::vector<std::byte> buffer(bytes);
  const bool sender = ranks.rank() == 0;
  return repeat(ranks, limits,
                {.prepare =
                     [&](std::uint64_t repetition) {
                       std::memset(buffer.data(), static_cast<int>(repetition), bytes);
                     },
                 .run =
                     [&] {
                       std::byte done{};
                       if (sender) {
                         link.send(buffer.data(), bytes);
                         link.receive(&done, 1);
                       } else {
                         link.receive(buffer.data(), bytes);
                         link.send(&done, 1);
                       }
                     },
                 .check = {}});
}

}  // namespace dlaunch::bench
