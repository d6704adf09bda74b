#include "launcher/nodes/node_store.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <ifaddrs.h>

#include "launcher/nodes/addresses.h"
#include "launcher/nodes/node_records.h"
#include "runtime/base/host_address.h"

namespace dlaunch {
namespace {

// For one attempt to connect; a host that is down does not answer at all.
constexpr std::chrono::seconds kAttempt{3};
// Time for a resolver to find that two name servers are silent, and to ask a third.
constexpr std::chrono::seconds kLookup{15};

// The host name's addresses.
Result<std::vector<std::string>> resolve(const std::string& host, Deadline deadline) {
  const auto found = find_host(host, "", deadline);
  if (!found.ok()) return found.status().within("host '" + host + "'");
  std::vector<std::string> addresses;
  for (const HostAddress& each : found->addresses) {
    if (std::string text = numeric_text(each.get()); !text.empty()) {
      addresses.push_back(std::move(text));
    }
  }
  return addresses;
}

// Whether the address is one of this host's, or stands for all of them, which only the node that is
// to host the store is given. That a socket can be bound to an address would not tell: where
// addresses move between hosts, any can be (ip_nonlocal_bind).
bool is_own(const std::string& address) {
  if (is_loopback(address) || is_unspecified(address)) return true;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(interfaces, &freeifaddrs);
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if (numeric_text(each->ifa_addr) == address) return true;
  }
  return false;
}

// Where a process on this host reaches what listens there. What listens on all addresses because of
// a name does so on those of IPv4 at least.
std::string from_here(const std::string& listening, const NodeSettings& settings) {
  if (!is_unspecified(listening)) return listening;
  return without_brackets(settings.host) == "::" ? "::1" : "127.0.0.1";
}

// Listens at the address; where that is all of them because of a name, and there is no IPv6, at
// those of IPv4.
Result<std::unique_ptr<StoreServer>> host_store(const std::string& address,
                                                const NodeSettings& settings,
                                                const Logger& logger) {
  StoreServer::Options options{.bind_address = address,
                               .port = settings.port,
                               .token = settings.token,
                               .limited_prefix = std::string(node_keys::kAttempt),
                               .logger = logger};
  auto server = StoreServer::start(options);
  if (server.ok() || address != "::" || without_brackets(settings.host) == address) return server;
  options.bind_address = "0.0.0.0";
  return StoreServer::start(std::move(options));
}

Result<NodeStore> try_once(const NodeSettings& settings, const Logger& logger, Deadline deadline) {
  auto addresses = resolve(settings.host, earliest(deadline, Deadline::after(kLookup)));
  if (!addresses.ok()) return addresses.status();
  NodeStore store{.address = settings.endpoint()};
  Status hosting;
  std::vector<std::string> own;
  std::ranges::copy_if(*addresses, std::back_inserter(own), is_own);
  if (!own.empty()) {
    const std::string serving = address_to_serve(settings.host, own);
    auto server = host_store(serving, settings, logger);
    hosting = server.status();
    if (hosting.code() == StatusCode::kIo) return hosting;
    // Else the port is taken: most likely by another dlaunch of this job on this host.
    if (server.ok()) store.server = *std::move(server);
    store.address = host_port(from_here(serving, settings), settings.port);
    if (store.server && is_loopback(own.front()) && !is_loopback_by_name(settings.host))
      store.loopback = own.front();
  }
  auto client = TcpStore::connect(store.address, settings.token,
                                  earliest(deadline, Deadline::after(kAttempt)));
  if (!client.ok()) {
    const Status& why = client.status();
    // Who hosts it is no question where a store has answered.
    if (hosting.ok() || why.code() == StatusCode::kUnauthenticated) return why;
    return Status(why.code(),
                  why.to_string() + "; nor could this node host it: " + hosting.to_string());
  }
  store.client = *std::move(client);
  store.client->limit_answers(kAttempt);
  // The store of a job that has just ended lives on until all its nodes know.
  const auto verdict = store.client->try_get({std::string(node_keys::kVerdict)});
  if (!verdict.ok()) return verdict.status();
  if (!verdict->front()) return store;
  const auto read = parse_record<VerdictRecord>(*verdict->front());
  if (read.ok() && read->action != VerdictRecord::Action::kAgain) {
    return Status(StatusCode::kUnavailable, "there is a job that has just ended");
  }
  return store;
}

bool may_change(StatusCode code) {
  return code == StatusCode::kUnavailable || code == StatusCode::kTimeout ||
         code == StatusCode::kPeerLost;
}

}  // namespace

Result<NodeStore> open_node_store(const NodeSettings& settings, const Logger& logger,
                                  Deadline deadline,
                                  const std::function<bool(const Status& so_far)>& pause) {
  Status why;
  while (true) {
    auto store = try_once(settings, logger, deadline);
    if (store.ok() || !may_change(store.status().code())) return store;
    // An attempt that had no time left says no more than that.
    if (why.ok() || !deadline.expired()) why = store.status();
    if (deadline.expired()) {
      return Status(StatusCode::kUnavailable,
                    "nobody answers at " + settings.endpoint() + ": " + why.to_string());
    }
    if (!pause(store.status())) return Status(StatusCode::kAborted, "given up");
  }
}

}  // namespace dlaunch
