// What the user said about the nodes of the job, and how they find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace dlaunch {

/// Empty texts: not given. What they mean is node_settings.h's.
struct NodeOptions {
  std::string nodes;  // "4", "2:4"
  std::string node_rank;
  std::string endpoint;  // host:port
  std::string run_id;    // TORCHELASTIC_RUN_ID; the nodes of a job have the same
  std::string master_address;
  std::uint16_t master_port = 0;  // 0: not given
  std::string local_address;      // as choose_address() takes it
  std::string token_file;
  std::optional<std::chrono::nanoseconds> join_timeout;  // for all nodes to come
  std::optional<std::chrono::nanoseconds> silence;       // after which a node is lost
  std::optional<std::chrono::nanoseconds> last_call;     // for more than an elastic job needs
  bool standalone = false;       // one node, whatever the cluster's manager says
  bool explain = false;          // say where each value comes from
  std::uint16_t store_port = 0;  // 0: chosen by the system
};

void add_node_options(CLI::App& app, NodeOptions& options);

}  // namespace dlaunch
