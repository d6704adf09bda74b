// connect_sockets: the TCP connections of one rank with those peers that it reaches over TCP.
//
// The higher rank of a pair connects to the lower. Connections that do not prove the job's token,
// half-open ones, garbage and second comers are dropped with a line in the log and disturb nobody.
//
// To be called once per listener; blocks until all are connected or the time is up. Internal to
// connect_mesh.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/logging.h"
#include "runtime/base/status.h"
#include "transport/tcp/listener.h"

namespace dlaunch {

struct SocketMeshOptions {
  int rank = 0;
  int world_size = 1;
  int lanes = 1;
  std::string token;
  std::string job_id;
  // Numeric "host:port" by rank; empty: not over TCP. That of the rank itself is for messages.
  std::vector<std::string> addresses;
  std::chrono::nanoseconds timeout = kDefaultTimeout;
  // For a connection to be made, and for the other side of it to say something. Where packets are
  // dropped (a network that is being set up, a firewall that forgot), the system would keep to one
  // attempt for minutes; after this there is another.
  std::chrono::nanoseconds patience = std::chrono::seconds(10);
  // When a line in the log says whom this rank cannot reach so far.
  std::chrono::nanoseconds notice_after = std::chrono::seconds(10);
  Logger logger;
};

/// The connected sockets by lane, then rank; none where there is no address. kTimeout names the
/// ranks that are missing and why, as far as is known; a rank that misses only those that were to
/// connect to it says so up to a second later than they, who know more. kUnauthenticated if the
/// process at a rank's address does not know the token.
Result<std::vector<std::vector<Descriptor>>> connect_sockets(TcpListener listener,
                                                             const SocketMeshOptions& options);

}  // namespace dlaunch
