// The trace of a run as a file that Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing) open:
// JSON of the Trace Event Format. A process of it is a rank, and there are lines for the training
// thread and for collectives in the background, as many as were in flight at once.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/comm/communicator.h"
#include "trainers/output/record_file.h"
#include "trainers/trace/clock_offset.h"
#include "trainers/trace/tracer.h"

namespace dlaunch {

/// How the times of a rank become times of the trace.
struct TraceTimes {
  ClockAlignment alignment;
  std::int64_t origin = 0;  // by rank 0's clock
};

/// The events of a rank, separated by commas: the inside of a JSON array.
std::string trace_events(const Tracer& tracer, const TraceTimes& times, int rank);

/// Collective: writes the events of all ranks, one rank after the other, into the file of rank 0
/// (null on the others). Throws StatusError, std::runtime_error (the file cannot be written).
void write_trace(Communicator& world, RecordFile* file, const std::string& events);
/// Only this rank's. Throws std::runtime_error.
void write_trace(RecordFile& file, const std::string& events);

/// Where a rank writes if the others are lost: "trace.json" becomes "trace.rank3.json"; rank 0's is
/// the file itself.
std::string path_of_rank(const std::string& path, int rank);

}  // namespace dlaunch
