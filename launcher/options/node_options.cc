#include "launcher/options/node_options.h"

#include "launcher/options/option_group.h"
#include "launcher/options/values.h"

namespace dlaunch {
namespace {

// torchrun's ways of gathering nodes. dlaunch has one, whatever it is called.
void check_backend(const std::string& name) {
  if (name == "c10d" || name == "static") return;
  throw BadValue("'" + name + "' is not one of c10d and static, which mean dlaunch's own store");
}

}  // namespace

void add_node_options(CLI::App& app, NodeOptions& options) {
  const OptionGroup group(app, "Nodes");
  const auto text_into = [](std::string& into, const char* what) {
    return [&into, what](const std::string& text) { into = parse_text(text, what); };
  };
  group.add("--nnodes", "N", "Number of nodes; MIN:MAX: nodes may come and go",
            text_into(options.nodes, "number of nodes"));
  group.add("--node-rank", "R", "Number of this node (default: by order of arrival)",
            text_into(options.node_rank, "node rank"));
  group.add("--rdzv-endpoint", "ADDR", "Where the nodes meet: HOST:PORT of one of them",
            text_into(options.endpoint, "endpoint"));
  group.add("--rdzv-backend", "NAME", "c10d or static, as for torchrun: here the same",
            check_backend);
  group.add("--rdzv-id", "ID", "The ranks' TORCHELASTIC_RUN_ID (default: job's id)",
            text_into(options.run_id, "id"), "PET_RDZV_ID");
  group.add("--master-addr", "HOST", "The ranks' MASTER_ADDR, and where the nodes meet",
            text_into(options.master_address, "host"));
  group.add("--master-port", "PORT", "The ranks' MASTER_PORT, and the port to meet at",
            [&](const std::string& text) { options.master_port = parse_port(text); });
  group.add("--local-addr", "ADDR", "This node's address (interface, prefix) for others",
            text_into(options.local_address, "address"), "PET_LOCAL_ADDR");
  group.add("--token-file", "FILE", "File with the nodes' shared secret, 64 hex digits",
            text_into(options.token_file, "file"));
  group.add(
      "--rdzv-timeout", "SECONDS", "How long to wait for all nodes (default 300)",
      [&](const std::string& text) { options.join_timeout = parse_seconds(text, Zero::kRefused); });
  group.add(
      "--node-silence", "SECONDS", "A node silent for longer is lost (default 3.5)",
      [&](const std::string& text) { options.silence = parse_seconds(text, Zero::kRefused); });
  group.add_flag("--standalone", "One node, whatever the cluster says",
                 [&] { options.standalone = true; });
  group.add_flag("--explain", "Print where the values of this group come from",
                 [&] { options.explain = true; });
  group.add("--port", "PORT", "Port of the store on one node (default: any)",
            [&](const std::string& text) { options.store_port = parse_port(text); });
}

}  // namespace dlaunch
