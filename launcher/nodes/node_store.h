// The store through which the nodes of a job find each other: hosted by the node whose address the
// endpoint names, whichever node comes first.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launcher/nodes/node_settings.h"
#include "runtime/base/deadline.h"
#include "runtime/base/logging.h"
#include "runtime/base/status.h"
#include "runtime/rendezvous/store_server.h"
#include "runtime/rendezvous/tcp_store.h"

namespace dlaunch {

struct NodeStore {
  std::unique_ptr<StoreServer> server;  // if this node hosts it
  std::string address;                  // host:port by which this node reaches it
  std::string loopback;  // what the endpoint's name is here, if it is hosted for that reason
  std::unique_ptr<TcpStore> client;
};

/// Hosts the store, or connects to it, again and again until the deadline: the node with the store
/// may come later. `pause` is called between two attempts with what is wrong so far; it waits a
/// moment and returns false to give up (kAborted).
///   kUnavailable      nobody answered until the deadline
///   kUnauthenticated  another secret; kProtocol: another version of dlaunch, or no store
Result<NodeStore> open_node_store(const NodeSettings& settings, const Logger& logger,
                                  Deadline deadline,
                                  const std::function<bool(const Status& so_far)>& pause);

}  // namespace dlaunch
