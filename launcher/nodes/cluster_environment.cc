#include "launcher/nodes/cluster_environment.h"

#include <charconv>
#include <cstdint>

#include "launcher/nodes/addresses.h"
#include "runtime/base/hash_text.h"

namespace dlaunch {
namespace {

// Below the range of ports that the system gives away.
constexpr unsigned kFirstPort = 20000;
constexpr unsigned kPorts = 10000;

std::optional<Derived> from(const Variables& variables, const char* name) {
  auto value = variables(name);
  if (!value || value->empty()) return std::nullopt;
  return Derived{*std::move(value), name};
}

std::optional<std::uint64_t> number(const std::optional<Derived>& derived) {
  if (!derived) return std::nullopt;
  std::uint64_t value = 0;
  const char* end = derived->value.data() + derived->value.size();
  const auto [stop, error] = std::from_chars(derived->value.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Jobs that run at the same time on a host need ports of their own: one out of a number or a name
// that all nodes of the job know.
std::optional<Derived> port_of(const std::optional<Derived>& job) {
  if (!job) return Derived{kTorchrunMasterPort, kDefaultSource};
  const std::uint64_t value = number(job).value_or(hash_text(job->value));
  return Derived{std::to_string(kFirstPort + value % kPorts), job->source};
}

// So do the steps of a job, which may run side by side on its nodes.
std::optional<Derived> step_of(const Variables& variables) {
  auto job = from(variables, "SLURM_JOB_ID");
  const auto step = from(variables, "SLURM_STEP_ID");
  if (!job || !step) return job;
  return Derived{job->value + "." + step->value, job->source + " and " + step->source};
}

std::optional<ClusterEnvironment> detect_torchrun(const Variables& variables) {
  ClusterEnvironment found{.manager = "PET_* (torchrun, Kubeflow)"};
  found.nodes = from(variables, "PET_NNODES");
  if (!found.nodes) return std::nullopt;
  found.node_rank = from(variables, "PET_NODE_RANK");
  found.head = from(variables, "PET_MASTER_ADDR");
  found.port = from(variables, "PET_MASTER_PORT");
  if (const auto endpoint = from(variables, "PET_RDZV_ENDPOINT")) {
    const std::size_t colon = before_port(endpoint->value);
    found.head = Derived{endpoint->value.substr(0, colon), endpoint->source};
    found.port = colon == std::string::npos
                     ? Derived{kTorchrunEndpointPort, kDefaultSource}
                     : Derived{endpoint->value.substr(colon + 1), endpoint->source};
  }
  if (!found.port) found.port = Derived{kTorchrunMasterPort, kDefaultSource};
  return found;
}

std::optional<ClusterEnvironment> detect_kubeflow(const Variables& variables,
                                                  const std::function<std::string()>& host_name) {
  if (!variables("KUBERNETES_SERVICE_HOST") || variables("LOCAL_RANK")) return std::nullopt;
  ClusterEnvironment found{.manager = "Kubeflow"};
  found.nodes = from(variables, "WORLD_SIZE");
  found.node_rank = from(variables, "RANK");
  found.head = from(variables, "MASTER_ADDR");
  found.port = from(variables, "MASTER_PORT");
  if (!found.nodes || !found.node_rank || !found.head || !found.port) return std::nullopt;
  // Some versions tell the first node itself nothing better.
  if (found.head->value == "localhost" && found.node_rank->value == "0") {
    found.head = Derived{host_name(), "MASTER_ADDR (localhost), host name"};
  }
  return found;
}

Result<std::optional<ClusterEnvironment>> detect_slurm(const Variables& variables) {
  ClusterEnvironment found{.manager = "Slurm"};
  found.nodes = from(variables, "SLURM_STEP_NUM_NODES");  // which a batch script itself has not
  if (!found.nodes) return std::optional<ClusterEnvironment>();
  const auto tasks = from(variables, "SLURM_STEP_NUM_TASKS");
  if (tasks && tasks->value != found.nodes->value) {
    return Status(StatusCode::kInvalidArgument,
                  "Slurm has started " + tasks->value + " tasks on " + found.nodes->value +
                      " nodes; dlaunch wants one on each (srun --ntasks-per-node=1)");
  }
  found.node_rank = from(variables, "SLURM_NODEID");
  if (const auto list = from(variables, "SLURM_STEP_NODELIST")) {
    found.head = Derived{first_host(list->value), list->source};
    if (found.head->value.empty()) found.head.reset();
  }
  found.job = step_of(variables);
  found.port = port_of(found.job);
  found.shared_port = port_of(from(variables, "SLURM_JOB_ID"));
  return std::optional(found);
}

// "114098176.0;tcp://192.0.2.2,10.0.0.1:39177;tcp6://[fd00::2]:55941" -> "192.0.2.2".
std::string host_of_uri(const std::string& uri) {
  constexpr std::string_view kScheme = "tcp://";
  const std::size_t begin = uri.find(kScheme);
  if (begin == std::string::npos) return "";
  const std::size_t host = begin + kScheme.size();
  return uri.substr(host, uri.find_first_of(",:", host) - host);
}

// What MPI launchers call the same thing.
struct MpiNames {
  const char* manager;
  const char* size;
  const char* rank;
  const char* local_size;
};

std::optional<ClusterEnvironment> detect_mpi(const Variables& variables, const MpiNames& names) {
  ClusterEnvironment found{.manager = names.manager};
  found.nodes = from(variables, names.size);
  found.node_rank = from(variables, names.rank);
  if (!found.nodes || !found.node_rank) return std::nullopt;
  const auto here = from(variables, names.local_size);
  if (here && here->value == found.nodes->value) {
    found.head = Derived{"127.0.0.1", here->source + " (all are on this host)"};
  }
  found.port = Derived{kTorchrunMasterPort, kDefaultSource};
  return found;
}

std::optional<ClusterEnvironment> detect_open_mpi(const Variables& variables) {
  auto found = detect_mpi(variables, {.manager = "Open MPI",
                                      .size = "OMPI_COMM_WORLD_SIZE",
                                      .rank = "OMPI_COMM_WORLD_RANK",
                                      .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE"});
  if (!found) return found;
  const auto uri = from(variables, "OMPI_MCA_orte_hnp_uri");
  if (!found->head && uri && !host_of_uri(uri->value).empty()) {
    found->head = Derived{host_of_uri(uri->value), uri->source + " (mpirun's host)"};
  }
  found->job = from(variables, "PMIX_NAMESPACE");
  found->port = port_of(found->job);
  return found;
}

std::optional<ClusterEnvironment> detect_pmi(const Variables& variables) {
  return detect_mpi(variables, {.manager = "MPI (PMI)",
                                .size = "PMI_SIZE",
                                .rank = "PMI_RANK",
                                .local_size = "MPI_LOCALNRANKS"});
}

// The pods of an Indexed Job are called NAME-INDEX within a subdomain that they share.
std::optional<ClusterEnvironment> detect_indexed_job(
    const Variables& variables, const std::function<std::string()>& host_name) {
  ClusterEnvironment found{.manager = "Kubernetes Indexed Job"};
  found.node_rank = from(variables, "JOB_COMPLETION_INDEX");
  if (!found.node_rank) return std::nullopt;
  const std::string host = host_name();
  const std::string pod = host.substr(0, host.find('.'));
  const std::string domain = host.substr(pod.size());
  const std::string ending = "-" + found.node_rank->value;
  if (pod.ends_with(ending)) {
    found.head =
        Derived{pod.substr(0, pod.size() - ending.size()) + "-0" + domain, "host name " + host};
  }
  found.port = Derived{kTorchrunMasterPort, kDefaultSource};
  return found;
}

Result<ClusterEnvironment> detect_manager(const Variables& variables,
                                          const std::function<std::string()>& host_name) {
  if (auto found = detect_torchrun(variables)) return *std::move(found);
  if (auto found = detect_kubeflow(variables, host_name)) return *std::move(found);
  auto slurm = detect_slurm(variables);
  if (!slurm.ok()) return slurm.status();
  if (*slurm) return **std::move(slurm);
  if (auto found = detect_open_mpi(variables)) return *std::move(found);
  if (auto found = detect_pmi(variables)) return *std::move(found);
  if (auto found = detect_indexed_job(variables, host_name)) return *std::move(found);
  return ClusterEnvironment{};
}

}  // namespace

std::string first_host(std::string_view node_list) {
  const std::size_t end = node_list.find_first_of(",[");
  std::string host(node_list.substr(0, end));
  if (end == std::string_view::npos || node_list[end] == ',') return host;
  const std::size_t close = node_list.find(']', end);
  if (close == std::string_view::npos) return "";
  const std::string_view inside = node_list.substr(end + 1, close - end - 1);
  host += inside.substr(0, inside.find_first_of(",-"));
  // Some clusters have names with more after the bracket, or further brackets.
  return host + first_host(node_list.substr(close + 1));
}

Result<ClusterEnvironment> detect_cluster(const Variables& variables,
                                          const std::function<std::string()>& host_name) {
  if (variables("DLAUNCH_JOB_ID")) return ClusterEnvironment{};
  auto found = detect_manager(variables, host_name);
  if (found.ok()) found->ranks = from(variables, "PET_NPROC_PER_NODE");
  return found;
}

}  // namespace dlaunch
