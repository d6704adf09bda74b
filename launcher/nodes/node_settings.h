// How the nodes of a job find each other: what the user said, and where he said nothing, what the
// cluster's manager did.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/nodes/beat_clock.h"
#include "launcher/nodes/cluster_environment.h"
#include "launcher/options/node_options.h"
#include "runtime/base/status.h"

namespace dlaunch {

struct NodeSettings {
  int least = 1;  // nodes that the job needs, and
  int most = 1;   // takes
  std::optional<int> node_rank;
  std::string run_id;  // the same on all nodes; empty: whatever
  std::string host;    // where the store is, and
  std::uint16_t port = 0;
  std::string local_address;  // which the others are told; numeric; empty: by the way to the store
  std::string token;          // raw bytes
  std::chrono::nanoseconds join_timeout{};
  std::chrono::nanoseconds longest_silence = kLongestSilence;
  std::chrono::nanoseconds last_call = std::chrono::seconds(2);  // for a further node than needed
  std::optional<std::string> ranks;      // of this node, if the manager says; as --nproc takes it
  std::string master_address;            // for the ranks; empty: the first node's
  std::uint16_t master_port = 0;         // for the ranks; 0: a free one
  std::vector<std::string> explanation;  // a line for each value: what it is and where it is from

  bool several() const { return most > 1; }
  std::string endpoint() const;
};

/// kInvalidArgument says which option is missing or wrong. The secret is read only if there are
/// several nodes.
Result<NodeSettings> resolve_nodes(const NodeOptions& options, const ClusterEnvironment& cluster,
                                   const Variables& variables);

/// The variables of this process.
Variables own_variables();
/// The host's name, with its domain if the system knows one.
std::string full_host_name();

}  // namespace dlaunch
