// The environment that each rank gets: the user's own, torchrun's variables, and ours.
// docs/launcher.md lists them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dlaunch {

/// What all ranks of a job on this node have in common.
struct JobIdentity {
  std::string job_id;
  std::string token;          // raw bytes
  std::string store_address;  // host:port
  std::uint16_t master_port = 0;
  int ranks = 1;
  int restarts = 0;  // before this attempt
  int max_restarts = 0;
  int cores = 1;  // that all ranks of this node together may use
};

/// "NAME=value" strings for rank `rank`. `inherited` is this process's environment.
std::vector<std::string> rank_environment(const JobIdentity& job, int rank,
                                          const char* const* inherited);

}  // namespace dlaunch
