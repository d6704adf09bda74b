// Two ranks and a link between them: round trips and a one-way stream.
//
// A round trip is timed by rank 0 over a batch: it sends and waits for the answer, many times; a
// time is the batch's divided by the number. A stream is one message whose buffer the sender has
// just filled: rank 0's time from sending it until one byte has come back.
#pragma once

#include <cstddef>
#include <vector>

#include "tools/bench/measure/ranks.h"
#include "tools/bench/measure/repeat.h"

namespace dlaunch::bench {

/// The way to the other rank. Blocking; errors are exceptions.
class Link {
 public:
  virtual ~Link() = default;
  virtual void send(const std::byte* data, std::size_t bytes) = 0;
  virtual void receive(std::byte* data, std::size_t bytes) = 0;
};

/// Seconds of a round trip of `bytes` each way, in batches: for limits.seconds, or, of limits that
/// are exact, one batch of so many. Called by both ranks of `ranks`.
std::vector<double> round_trips(Ranks& ranks, Link& link, std::size_t bytes, const Limits& limits);

/// Seconds of a one-way transfer of `bytes`. Called by both.
std::vector<double> streams(Ranks& ranks, Link& link, std::size_t bytes, const Limits& limits);

}  // namespace dlaunch::bench
