#include "launcher/ranks/rank_environment.h"

#include <map>
#include <string_view>

#include "launcher/failure/recorded_error.h"
#include "launcher/nodes/addresses.h"
#include "runtime/base/host_address.h"
#include "runtime/base/token.h"

namespace dlaunch {

namespace {

using RankVariables = std::map<std::string, std::string, std::less<>>;

// "2,3" for the second rank with two GPUs each.
std::string gpus_of(const JobIdentity& job, int local_rank) {
  std::string list;
  for (int i = 0; i < job.gpus_per_rank; ++i) {
    const int index = local_rank * job.gpus_per_rank + i;
    list += (i > 0 ? "," : "") + job.gpus.at(static_cast<std::size_t>(index));
  }
  return list;
}

RankVariables variables_of(const JobIdentity& job, int local_rank) {
  const std::string rank = std::to_string(job.first_rank + local_rank);
  const std::string world = std::to_string(job.world);
  RankVariables variables{
      // What torchrun sets, with one role.
      {"RANK", rank},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"ROLE_RANK", rank},
      {"WORLD_SIZE", world},
      {"LOCAL_WORLD_SIZE", std::to_string(job.ranks)},
      {"ROLE_WORLD_SIZE", world},
      {"GROUP_RANK", std::to_string(job.node)},
      {"GROUP_WORLD_SIZE", std::to_string(job.nodes)},
      {"ROLE_NAME", job.role},
      {"MASTER_ADDR", job.master_address},
      {"MASTER_PORT", std::to_string(job.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(job.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(job.max_restarts)},
      {"TORCHELASTIC_RUN_ID", job.run_id.empty() ? job.job_id : job.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      // Empty is as unset to those who write it. That of an outer job is not for this one's ranks.
      {"TORCHELASTIC_ERROR_FILE",
       error_file(job.error_folder, job.attempt, job.first_rank + local_rank)},
      // Ours, see runtime/base/job_environment.h.
      {"DLAUNCH_STORE", job.store_address},
      {"DLAUNCH_STORE_PREFIX", job.store_prefix},
      {"DLAUNCH_TOKEN", token_to_hex(job.token)},
      {"DLAUNCH_RESTARTED", job.restarted ? "1" : "0"},
      {"DLAUNCH_JOB_ID", job.job_id},
      {"DLAUNCH_ACTIVITY", job.activity},
      {"DLAUNCH_NODES", std::to_string(job.nodes)},
      {"DLAUNCH_LOCAL_CORES", std::to_string(job.cores)},
  };
  if (!job.interface.empty()) variables["DLAUNCH_INTERFACE"] = without_brackets(job.interface);
  if (job.gpus_per_rank > 0) variables["CUDA_VISIBLE_DEVICES"] = gpus_of(job, local_rank);
  return variables;
}

}  // namespace

std::vector<std::string> rank_environment(const JobIdentity& job, int local_rank,
                                          const char* const* inherited) {
  const RankVariables ours = variables_of(job, local_rank);
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
