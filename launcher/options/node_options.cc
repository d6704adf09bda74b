#include "launcher/options/node_options.h"

#include "launcher/options/option_group.h"
#include "launcher/options/values.h"

namespace dlaunch {

void add_node_options(CLI::App& app, NodeOptions& options) {
  const OptionGroup group(app, "Nodes");
  group.add("--port", "PORT", "Port of the rendezvous store (default: any)",
            [&](const std::string& text) { options.store_port = parse_port(text); });
}

}  // namespace dlaunch
