// What dlaunch hands a rank through environment variables, and the rank's reading of it.
//
//   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE   as torchrun sets them
//   MASTER_ADDR, MASTER_PORT                          a free port for programs that bind their own
//   DLAUNCH_STORE        host:port of the rendezvous store
//   DLAUNCH_STORE_PREFIX begins all keys of this attempt of the job (default: none)
//   DLAUNCH_TOKEN        the job's secret, hexadecimal; or
//   DLAUNCH_TOKEN_FILE   a file that holds it
//   DLAUNCH_ACTIVITY     the memory in which ranks publish what they are doing: see activity.h
//   DLAUNCH_JOB_ID       names the job in logs and in `dlaunch status`
//   DLAUNCH_RESTARTED    1: ranks of this job were ready before, and it was started again, after
//                        a failure or because nodes came or went; dtrain reads it
//   DLAUNCH_NODES        number of nodes; sockets bind to loopback only while it is 1
//   DLAUNCH_LOCAL_CORES  cores of this node that its ranks share (default: all that it may use)
//   DLAUNCH_TIMEOUT      seconds that a wait lasts at most (default 300)
//   DLAUNCH_TRANSPORT    auto (default), tcp or shm: see transport_choice.h
//   DLAUNCH_INTERFACE    this host's address for the ranks of other nodes: see chosen_address.h
//   DLAUNCH_REDUCE_ORDER any (default) or ranks: the order of operands in reductions
//   DLAUNCH_COST_MODEL   file by which algorithms are chosen: see collective/cost_model.h
#pragma once

#include <chrono>
#include <string>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/base/transport_choice.h"

namespace dlaunch {

struct JobEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int nodes = 1;
  int local_cores = 1;        // that all ranks of this node together may use
  std::string store_address;  // "host:port"; empty in a world of one without dlaunch
  std::string store_prefix;   // of all keys
  std::string token;          // the job's secret, as raw bytes
  std::string job_id;
  std::string activity;  // file of an activity.h; empty: none
  std::chrono::nanoseconds timeout = kDefaultTimeout;
  TransportChoice transport = TransportChoice::kAuto;
  std::string interface;  // as choose_address() takes it; empty: by the way to the store
  bool reduce_in_rank_order = false;
  std::string cost_model;  // file of a collective/cost_model.h; empty: the built-in one

  /// True if this process was started by dlaunch.
  bool launched() const { return !store_address.empty(); }
};

/// Reads the environment of this process. Without dlaunch's variables it is a world of one. Half a
/// set, a value that is no number or out of range, or another launcher's sign that there are more
/// ranks (torchrun, mpirun, srun) is kInvalidArgument and names the variable.
Result<JobEnvironment> read_job_environment();

/// DLAUNCH_TIMEOUT alone.
Result<std::chrono::nanoseconds> read_timeout();

}  // namespace dlaunch
