// Where in a cluster this process runs, from what its manager has put into the environment: which
// node of how many, and where the first one is.
//
//   torchrun's own:    PET_NNODES, PET_NODE_RANK, PET_RDZV_ENDPOINT, PET_MASTER_ADDR,
//                      PET_MASTER_PORT, PET_NPROC_PER_NODE
//   Kubeflow:          the same, or MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE under Kubernetes
//   Slurm (srun):      SLURM_STEP_NUM_NODES, SLURM_STEP_NUM_TASKS, SLURM_NODEID,
//                      SLURM_STEP_NODELIST, SLURM_JOB_ID, SLURM_STEP_ID
//   Open MPI:          OMPI_COMM_WORLD_SIZE, _RANK, _LOCAL_SIZE, OMPI_MCA_orte_hnp_uri,
//                      PMIX_NAMESPACE
//   MPICH and others:  PMI_SIZE, PMI_RANK, MPI_LOCALNRANKS
//   Kubernetes:        JOB_COMPLETION_INDEX, and the pod's name
//
// Of several, the first in this order counts. Within a rank of dlaunch none does: what the ranks of
// a job start is a job of its own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace dlaunch {

/// The port of a rendezvous endpoint that has none, with torchrun.
inline constexpr const char* kTorchrunEndpointPort = "29400";
/// And its MASTER_PORT if nothing says another.
inline constexpr const char* kTorchrunMasterPort = "29500";

/// What the source of a value is called that nobody gave.
inline constexpr const char* kDefaultSource = "default";

/// A value and the variables that it comes from.
struct Derived {
  std::string value;
  std::string source;
};

struct ClusterEnvironment {
  std::string manager;           // "Slurm"; empty: none
  std::optional<Derived> nodes;  // "4", or "2:4" from PET_NNODES
  std::optional<Derived> node_rank;
  std::optional<Derived> head;         // the host of the first node
  std::optional<Derived> port;         // on that host
  std::optional<Derived> shared_port;  // on a host that the user names, for all steps of a job
  std::optional<Derived> job;          // what the manager calls what it has started
  std::optional<Derived> ranks;        // of a node, as --nproc takes it
};

/// An environment variable's value, or nothing.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// `host_name` gives this host's, with its domain if it has one; asked only if needed, for it may
/// take time. kInvalidArgument if the manager has started dlaunch in a way that cannot work, such
/// as several times on a node.
Result<ClusterEnvironment> detect_cluster(const Variables& variables,
                                          const std::function<std::string()>& host_name);

/// The first host of a Slurm node list: "node[003-007,9],other" -> "node003". Empty if it is none.
std::string first_host(std::string_view node_list);

}  // namespace dlaunch
