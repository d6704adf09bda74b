#include "launcher/rank_environment.h"

#include <map>
#include <string_view>

#include "runtime/base/token.h"

namespace dlaunch {

std::vector<std::string> rank_environment(const JobIdentity& job, int rank,
                                          const char* const* inherited) {
  const std::string number = std::to_string(rank);
  const std::string count = std::to_string(job.ranks);
  std::map<std::string, std::string, std::less<>> ours{
      // What torchrun sets, on one node with one role.
      {"RANK", number},
      {"LOCAL_RANK", number},
      {"ROLE_RANK", number},
      {"WORLD_SIZE", count},
      {"LOCAL_WORLD_SIZE", count},
      {"ROLE_WORLD_SIZE", count},
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"ROLE_NAME", "default"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(job.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(job.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(job.max_restarts)},
      {"TORCHELASTIC_RUN_ID", job.job_id},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      // Ours, see runtime/base/job_environment.h.
      {"DLAUNCH_STORE", job.store_address},
      {"DLAUNCH_TOKEN", token_to_hex(job.token)},
      {"DLAUNCH_JOB_ID", job.job_id},
      {"DLAUNCH_NODES", "1"},
      {"DLAUNCH_LOCAL_CORES", std::to_string(job.cores)},
  };
  bool threads_set = false;
  std::vector<std::string> environment;
  for (; *inherited != nullptr; ++inherited) {
    const std::string_view entry(*inherited);
    const std::string_view name = entry.substr(0, entry.find('='));
    // A job within a job: the outer one's secret is not for the inner one's ranks.
    if (ours.find(name) != ours.end() || name == "DLAUNCH_TOKEN_FILE") continue;
    threads_set = threads_set || name == "OMP_NUM_THREADS";
    environment.emplace_back(entry);
  }
  if (!threads_set && job.ranks > 1) environment.emplace_back("OMP_NUM_THREADS=1");
  for (const auto& [name, value] : ours) {
    environment.push_back(name);
    environment.back().append("=").append(value);
  }
  return environment;
}

}  // namespace dlaunch
