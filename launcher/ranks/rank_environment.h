// The environment that each rank gets: the user's own, torchrun's variables, and ours.
// docs/launcher.md lists them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dlaunch {

/// Another node of the job.
struct NodePlace {
  int node = 0;
  std::string host;
  int first_rank = 0;
  int ranks = 0;
};

/// What all ranks of a job on this node have in common.
struct JobIdentity {
  std::string job_id;
  std::string run_id;         // as the user calls it; empty: the job's id
  std::string role;           // ROLE_NAME
  std::string token;          // raw bytes
  std::string store_address;  // host:port
  std::string activity;       // path of an ActivityBoard; empty: none
  std::string error_folder;   // of the files of recorded_error.h; empty: none
  std::string store_prefix;   // of all keys of this attempt
  std::string master_address = "127.0.0.1";
  std::uint16_t master_port = 0;
  std::string interface;  // DLAUNCH_INTERFACE; empty: as dlaunch was given it
  int node = 0;           // this one, of
  int nodes = 1;
  std::vector<NodePlace> others;  // all but this one
  int first_rank = 0;             // of this node, in
  int world = 1;                  // ranks of all nodes
  int ranks = 1;                  // of this node
  int attempt = 0;
  int restarts = 0;        // before this attempt; nodes that come and go cost none
  bool restarted = false;  // the ranks of an attempt before were ready
  int max_restarts = 0;
  int cores = 1;                  // that all ranks of this node together have time for
  std::vector<std::string> gpus;  // of this node, with
  int gpus_per_rank = 0;          // 0: ranks see what dlaunch sees
};

/// "NAME=value" strings for rank `local_rank` of this node. `inherited` is this process's
/// environment.
std::vector<std::string> rank_environment(const JobIdentity& job, int local_rank,
                                          const char* const* inherited);

}  // namespace dlaunch
