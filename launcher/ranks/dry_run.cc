#include "launcher/ranks/dry_run.h"

#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include "launcher/base/number_list.h"
#include "launcher/ranks/binding.h"
#include "launcher/ranks/rank_environment.h"
#include "runtime/base/usable_cores.h"

namespace dlaunch {
namespace {

// As a shell would need it.
std::string shell_quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// What a start would set the variable to, as far as that is known before.
std::string value_of(const std::string& name, const std::string& value) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kUnknown{
      {{"DLAUNCH_STORE", "(the store's address)"},
       {"DLAUNCH_TOKEN", "(the job's secret)"},
       {"DLAUNCH_JOB_ID", "(generated)"},
       {"DLAUNCH_ACTIVITY", "(an in-memory file)"},
       {"TORCHELASTIC_RUN_ID", "(the same as DLAUNCH_JOB_ID)"},
       {"TORCHELASTIC_ERROR_FILE", "(a file of its own)"},
       {"MASTER_ADDR", "(the address of node 0)"},
       {"MASTER_PORT", "(a free port)"}}};
  for (const auto& [unknown, what] : kUnknown) {
    if (name == unknown && (value.empty() || value == "0")) return std::string(what);
  }
  return shell_quoted(value);
}

std::string reader(const OutputOptions& output, int rank) {
  if (output.standard_input == OutputOptions::kEverybody) return "a copy of dlaunch's";
  return output.standard_input == rank ? "dlaunch's" : "/dev/null";
}

// As if all nodes had come and had as many ranks as this one.
JobIdentity presumed(const JobOptions& options, const NodeSettings& nodes) {
  JobIdentity job{.run_id = options.nodes.run_id,
                  .role = options.torchrun.role,
                  .ranks = options.ranks,
                  .max_restarts = options.supervision.max_restarts,
                  .cores = cores_with_time(),
                  .gpus = options.placement.gpus,
                  .gpus_per_rank = options.placement.gpus_per_rank};
  job.nodes = nodes.most;
  job.node = nodes.node_rank.value_or(0);
  job.first_rank = job.node * job.ranks;
  job.world = job.nodes * job.ranks;
  job.master_port = nodes.master_port;
  job.interface = nodes.local_address;
  if (nodes.several()) job.store_prefix = "attempt 0/";
  if (!nodes.master_address.empty()) {
    job.master_address = nodes.master_address;
  } else if (nodes.several()) {
    job.master_address.clear();
  }
  return job;
}

std::string describe_nodes(const NodeSettings& nodes, const JobIdentity& job) {
  if (!nodes.several()) return "";
  return "node " + std::to_string(job.node) + " of " + std::to_string(job.nodes) +
         (nodes.node_rank ? "" : ", if it comes first") + "; they meet at " + nodes.endpoint() +
         "; ranks are numbered as if every node had " + std::to_string(job.ranks) + "\n";
}

std::string changed_variables(const JobIdentity& job, int local_rank) {
  std::string text;
  for (const std::string& entry : rank_environment(job, local_rank, environ)) {
    const auto equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    const std::string value = entry.substr(equals + 1);
    const char* own = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): one thread
    if (own != nullptr && own == value) continue;
    text += "    " + name + "=" + value_of(name, value) + "\n";
  }
  return text;
}

}  // namespace

std::string describe_job(const JobOptions& options, const NodeSettings& nodes,
                         const std::string& program) {
  const JobIdentity job = presumed(options, nodes);
  const Shares shares = bind_ranks(options.placement.bind, job.ranks);
  std::string command = shell_quoted(program);
  for (std::size_t i = 1; i < options.command.size(); ++i) {
    command += " " + shell_quoted(options.command[i]);
  }
  std::string text = describe_nodes(nodes, job);
  for (int local_rank = 0; local_rank < job.ranks; ++local_rank) {
    const int rank = job.first_rank + local_rank;
    const auto index = static_cast<std::size_t>(local_rank);
    text += "rank " + std::to_string(rank) + "\n  command: " + command + "\n";
    text += "  cores:   " +
            (shares.empty() ? "all that dlaunch may use" : format_number_list(shares[index])) +
            "\n";
    text += "  stdin:   " + reader(options.output, rank) + "\n";
    text += "  environment, beside dlaunch's own:\n" + changed_variables(job, local_rank);
  }
  return text;
}

}  // namespace dlaunch
