// What dbench was asked to do, and its command line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/collective/types.h"
#include "tools/bench/measure/repeat.h"

namespace dlaunch::bench {

enum class Subject { kCollective, kPointToPoint, kMachine, kExplain, kTune };

/// Whether it adds up operands, or combines them otherwise.
bool reduces(CollectiveKind kind);

struct Options {
  Subject subject = Subject::kCollective;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int nproc = 2;  // ranks to start when not started by dlaunch

  std::size_t min_bytes = 4;
  std::size_t max_bytes = std::size_t{16} << 20;
  std::size_t factor = 4;
  std::vector<std::size_t> counts;  // instead of the three above

  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<Algorithm> algorithms = {Algorithm::kAuto};
  ReduceOrder order = ReduceOrder::kAny;
  int root = 0;
  bool allocated = false;  // buffers from Communicator::allocate
  std::string transport;   // for DLAUNCH_TRANSPORT; empty: as it is

  Limits limits;
  bool verify = false;           // every element of every repetition, not of the last one only
  bool only_references = false;  // of p2p: sockets and memory only
  std::string json_path;

  // explain and tune
  std::size_t bytes = 0;  // explain: of the vector; machine: of a rank's buffer, 0 for the default
  int hosts = 1;
  int ranks_per_host = 4;
  int cores = 1;           // of a host
  std::string model_path;  // empty: the built-in model

  /// The sizes to measure, in elements.
  std::vector<std::size_t> sweep() const;
};

/// Reads a command line. Throws CLI::ParseError (also to show the help: CLI::CallForHelp).
/// `help` receives the text to print in that case; or the version.
Options parse_command_line(int argc, char** argv, std::string& help);

}  // namespace dlaunch::bench
