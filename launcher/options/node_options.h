// What the user said about the nodes of the job, and how they find each other.
#pragma once

#include <cstdint>

namespace CLI {
class App;
}

namespace dlaunch {

struct NodeOptions {
  std::uint16_t store_port = 0;  // 0: chosen by the system
};

void add_node_options(CLI::App& app, NodeOptions& options);

}  // namespace dlaunch
