#include "launcher/nodes/node_settings.h"

#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <utility>

#include <unistd.h>

#include "launcher/nodes/addresses.h"
#include "runtime/base/chosen_address.h"
#include "runtime/base/host_address.h"
#include "runtime/base/token.h"
#include "runtime/base/token_file.h"

namespace dlaunch {
namespace {

constexpr const char* kEndpointOption = "--rdzv-endpoint";
constexpr const char* kNodesOption = "--nnodes";
constexpr std::chrono::minutes kDefaultJoinTimeout{5};
constexpr std::chrono::seconds kOwnNameTakes{5};  // at most

Status invalid(std::string why) {
  return Status(StatusCode::kInvalidArgument, std::move(why));
}

// Where a value is from, for --explain.
std::string from(const std::string& source) {
  if (source == kDefaultSource) return "by default";
  return "from " + source;
}

// What the option was given, or else what has been derived.
std::optional<Derived> given(const char* option, const std::string& value,
                             const std::optional<Derived>& derived) {
  if (!value.empty()) return Derived{value, option};
  return derived;
}

Result<int> parse(const std::string& name, const std::string& text, int least, int most) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value >= least && value <= most) return value;
  return invalid(name + ": '" + text + "' is not a number from " + std::to_string(least) + " to " +
                 std::to_string(most));
}

constexpr int kMostNodes = 4096;

// "4" or "2:4".
Status parse_nodes(const Derived& nodes, NodeSettings& settings) {
  const std::string name = "number of nodes (" + nodes.source + ")";
  const std::size_t colon = nodes.value.find(':');
  auto least = parse(name, nodes.value.substr(0, colon), 1, kMostNodes);
  if (!least.ok()) return least.status();
  auto most = colon == std::string::npos
                  ? least
                  : parse(name, nodes.value.substr(colon + 1), 1, kMostNodes);
  if (!most.ok()) return most.status();
  if (*most < *least) return invalid(name + ": in '" + nodes.value + "' MAX is less than MIN");
  settings.least = *least;
  settings.most = *most;
  return {};
}

// Who has not asked for several nodes is told who has.
Status no_endpoint(const Derived& nodes) {
  if (nodes.source == kNodesOption)
    return invalid("where do the nodes meet? (--rdzv-endpoint HOST:PORT)");
  return invalid("there are " + nodes.value + " nodes, " + from(nodes.source) +
                 ": where do they meet? (--rdzv-endpoint HOST:PORT, or --standalone for this node "
                 "alone)");
}

Status parse_endpoint(const NodeOptions& options, const ClusterEnvironment& cluster,
                      const Derived& nodes, NodeSettings& settings) {
  std::optional<Derived> head = cluster.head;
  std::optional<Derived> port = cluster.port;
  if (!options.endpoint.empty()) {
    if (cluster.shared_port) port = cluster.shared_port;
    const std::size_t colon = before_port(options.endpoint);
    head = Derived{options.endpoint.substr(0, colon), kEndpointOption};
    if (colon != std::string::npos) {
      port = Derived{options.endpoint.substr(colon + 1), kEndpointOption};
    }
    // What a manager has made of the job's number keeps jobs on one host apart.
    const bool chosen = port && port->source != kDefaultSource;
    if (!chosen) port = Derived{kTorchrunEndpointPort, kDefaultSource};
  }
  if (options.endpoint.empty() && !options.master_address.empty()) {
    head = Derived{options.master_address, "--master-addr"};
    port = options.master_port == 0 ? Derived{kTorchrunMasterPort, kDefaultSource}
                                    : Derived{std::to_string(options.master_port), "--master-port"};
  }
  if (!head || head->value.empty()) return no_endpoint(nodes);
  if (!is_host(head->value)) {
    return invalid("endpoint (" + head->source + "): '" + head->value +
                   "' is no host; it is HOST:PORT, and an address of IPv6 has brackets before a "
                   "port: [fd00::1]:29500");
  }
  auto number = parse("port (" + port->source + ")", port->value, 1, UINT16_MAX);
  if (!number.ok()) return number.status();
  // What has the manager's endpoint is the manager's job: another may use the same by mistake.
  const bool is_managers = options.endpoint.empty() && options.master_address.empty();
  if (is_managers && cluster.job && settings.run_id.empty()) settings.run_id = cluster.job->value;
  settings.host = head->value;
  settings.port = static_cast<std::uint16_t>(*number);
  settings.explanation.push_back("endpoint: " + settings.endpoint() + ", host " +
                                 from(head->source) + ", port " + from(port->source));
  return {};
}

// Beats come every half second, and may be late where a machine is busy.
constexpr std::chrono::seconds kLeastSilence{2};

Status take_silence(const NodeOptions& options, NodeSettings& settings) {
  if (!options.silence) return {};
  if (*options.silence < kLeastSilence) {
    return invalid("--node-silence: at least 2 seconds, for busy nodes are late now and then");
  }
  settings.longest_silence = *options.silence;
  return {};
}

// What the user has said counts, or he is told that it would not.
Status refuse_what_would_not_count(const NodeOptions& options, const NodeSettings& settings) {
  if (settings.several() && options.store_port != 0) {
    return invalid(
        "--port is for one node; on several the store's port is that of --rdzv-endpoint HOST:PORT");
  }
  if (!settings.several() && !options.standalone && options.silence) {
    return invalid("--node-silence: the job has one node; how many are there? (--nnodes N)");
  }
  if (options.standalone && !options.nodes.empty() && options.nodes != "1" &&
      options.nodes != "1:1") {
    return invalid("--standalone is for one node, --nnodes says " + options.nodes);
  }
  const bool numbered = !options.node_rank.empty() && options.node_rank != "0";
  if (!settings.several() && !options.standalone && numbered) {
    return invalid("--node-rank " + options.node_rank +
                   ": the job has one node; how many are there? (--nnodes N)");
  }
  return {};
}

Status find_token(const NodeOptions& options, const Variables& variables, NodeSettings& settings) {
  std::string file = options.token_file;
  std::string source = "--token-file " + file;
  if (file.empty()) {
    file = variables("DLAUNCH_TOKEN_FILE").value_or("");
    source = "DLAUNCH_TOKEN_FILE " + file;
  }
  const auto hex = variables("DLAUNCH_TOKEN");
  if (file.empty() && !hex) {
    return invalid(
        "several nodes need a secret that all of them have: make one with \"umask 077; dlaunch "
        "token > FILE\", copy it to all nodes and give each --token-file FILE (or "
        "DLAUNCH_TOKEN_FILE or DLAUNCH_TOKEN in the environment)");
  }
  if (file.empty()) source = "DLAUNCH_TOKEN";
  auto token = file.empty() ? token_from_hex(*hex) : read_token_file(file);
  if (!token.ok()) return file.empty() ? token.status().within(source) : token.status();
  settings.token = *std::move(token);
  settings.explanation.push_back("secret: from " + source);
  return {};
}

// Now rather than in every rank, which would each find that there is none.
Status find_local_address(const NodeOptions& options, const Variables& variables,
                          NodeSettings& settings) {
  std::string choice = options.local_address;
  const std::string source = choice.empty() ? "DLAUNCH_INTERFACE" : "--local-addr";
  if (choice.empty()) choice = variables("DLAUNCH_INTERFACE").value_or("");
  if (choice.empty()) return {};
  auto address = choose_address(choice);
  if (!address.ok()) return invalid(source + ": " + address.status().to_string());
  settings.local_address = *std::move(address);
  settings.explanation.push_back("address of this node: " + settings.local_address + ", from " +
                                 source + " " + choice);
  return {};
}

}  // namespace

std::string NodeSettings::endpoint() const {
  return host_port(host, port);
}

Result<NodeSettings> resolve_nodes(const NodeOptions& options, const ClusterEnvironment& cluster,
                                   const Variables& variables) {
  NodeSettings settings;
  settings.join_timeout = options.join_timeout.value_or(kDefaultJoinTimeout);
  settings.last_call = options.last_call.value_or(settings.last_call);
  settings.run_id = options.run_id;
  const auto nodes = options.standalone ? Derived{"1", "--standalone"}
                                        : given(kNodesOption, options.nodes, cluster.nodes)
                                              .value_or(Derived{"1", kDefaultSource});
  if (!cluster.manager.empty()) settings.explanation.push_back("started by: " + cluster.manager);
  settings.explanation.push_back("nodes: " + nodes.value + ", " + from(nodes.source));
  DLAUNCH_RETURN_IF_ERROR(parse_nodes(nodes, settings));
  DLAUNCH_RETURN_IF_ERROR(refuse_what_would_not_count(options, settings));
  DLAUNCH_RETURN_IF_ERROR(take_silence(options, settings));
  if (!options.standalone && cluster.ranks) {
    settings.ranks = cluster.ranks->value;
    settings.explanation.push_back("ranks of a node, unless --nproc says otherwise: " +
                                   cluster.ranks->value + ", " + from(cluster.ranks->source));
  }
  // torchrun's "static" way: what names the master names the place where the nodes meet, unless
  // that is named itself.
  if (!settings.several() || !options.endpoint.empty()) {
    settings.master_address = options.master_address;
    settings.master_port = options.master_port;
  }
  if (!settings.several()) return settings;
  if (const auto rank = given("--node-rank", options.node_rank, cluster.node_rank)) {
    auto number = parse("node rank (" + rank->source + ")", rank->value, 0, settings.most - 1);
    if (!number.ok()) return number.status();
    settings.node_rank = *number;
    settings.explanation.push_back("node rank: " + rank->value + ", " + from(rank->source));
  } else {
    settings.explanation.emplace_back("node rank: in the order in which the nodes come");
  }
  DLAUNCH_RETURN_IF_ERROR(parse_endpoint(options, cluster, nodes, settings));
  DLAUNCH_RETURN_IF_ERROR(find_local_address(options, variables, settings));
  DLAUNCH_RETURN_IF_ERROR(find_token(options, variables, settings));
  return settings;
}

Variables own_variables() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::string full_host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "?";
  const auto found = find_host(name.data(), "", Deadline::after(kOwnNameTakes));
  return found.ok() ? found->canonical_name : name.data();
}

}  // namespace dlaunch
