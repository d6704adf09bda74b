#include "launcher/nodes/node_store.h"

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "launcher/nodes/addresses.h"
#include "launcher/nodes/node_records.h"

namespace dlaunch {
namespace {

// For one attempt to connect; a host that is down does not answer at all.
constexpr std::chrono::seconds kAttempt{3};

// Numeric, without brackets; empty for an address of another kind.
std::string text_of(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) return "";
  const socklen_t length =
      address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  const int failed =
      getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? text.data() : "";
}

// The host name's addresses.
Result<std::vector<std::string>> resolve(const std::string& host) {
  const std::string bare(without_brackets(host));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(bare.c_str(), nullptr, &hints, &found);
  if (failed != 0) {
    return Status(StatusCode::kUnavailable, "host '" + host + "': " + gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (std::string text = text_of(each->ai_addr); !text.empty()) {
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
    if (text_of(each->ifa_addr) == address) return true;
  }
  return false;
}

// Where this node is to listen if it hosts the store; nothing if another one does. A name that
// leads to loopback (the own name, in many an /etc/hosts) is known to others under another address,
// so then all addresses are served.
std::optional<std::string> address_to_host(const NodeSettings& settings,
                                           const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    if (!is_own(address)) continue;
    const bool by_name = without_brackets(settings.host) != address && settings.host != "localhost";
    return is_loopback(address) && by_name ? "0.0.0.0" : address;
  }
  return std::nullopt;
}

// Where a process on this host reaches what listens there.
std::string from_here(const std::string& listening) {
  if (!is_unspecified(listening)) return listening;
  return listening == "::" ? "::1" : "127.0.0.1";
}

Result<NodeStore> try_once(const NodeSettings& settings, const Logger& logger, Deadline deadline) {
  auto addresses = resolve(settings.host);
  if (!addresses.ok()) return addresses.status();
  NodeStore store{.address = settings.endpoint()};
  Status hosting;
  if (const auto own = address_to_host(settings, *addresses)) {
    auto server = StoreServer::start(
        {.bind_address = *own, .port = settings.port, .token = settings.token, .logger = logger});
    // The port is taken: most likely by another dlaunch of this job on this host.
    hosting = server.status();
    if (server.ok()) store.server = *std::move(server);
    store.address = host_port(from_here(*own), settings.port);
  }
  auto client = TcpStore::connect(store.address, settings.token,
                                  earliest(deadline, Deadline::after(kAttempt)));
  if (!client.ok()) {
    const Status& why = client.status();
    if (hosting.ok()) return why;
    return Status(why.code(),
                  why.to_string() + "; nor could this node host it: " + hosting.to_string());
  }
  store.client = *std::move(client);
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
  while (true) {
    auto store = try_once(settings, logger, deadline);
    if (store.ok() || !may_change(store.status().code())) return store;
    if (deadline.expired()) {
      return Status(StatusCode::kUnavailable,
                    "nobody answers at " + settings.endpoint() + ": " + store.status().to_string());
    }
    if (!pause(store.status())) return Status(StatusCode::kAborted, "given up");
  }
}

}  // namespace dlaunch
