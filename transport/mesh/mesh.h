// connect_mesh: connects the ranks of a world with each other, through shared memory where two of
// them can share it and over TCP elsewhere.
//
// A rank opens its TcpListener and calls connect_mesh with a means to tell the other ranks
// something and to hear what they say. Ranks that seem to be on one host try to map a segment of
// one of them; those that really have done so share memory. TCP connections are made between the
// other pairs only.
//
// To be called once per listener, from any thread; it blocks until all ranks are connected or the
// time is up. Worlds within worlds are fine: nothing here knows of a job's other ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/logging.h"
#include "runtime/base/status.h"
#include "runtime/base/transport_choice.h"
#include "transport/endpoint.h"
#include "transport/inbox.h"
#include "transport/mesh/wait_policy.h"
#include "transport/tcp/listener.h"

namespace dlaunch {

/// The rounds of an exchange (see below) of connect_mesh(). The second one may be left out, by all.
inline constexpr std::string_view kFirstMeshRound = "introductions";
inline constexpr std::string_view kSecondMeshRound = "sharing";

/// Gives all ranks' texts, by rank, to all ranks (an all-gather). `round` differs from call to call
/// and is the same on all ranks. Returns by the deadline.
using Exchange = std::function<Result<std::vector<std::string>>(
    std::string_view round, const std::string& own, Deadline deadline)>;

struct MeshOptions {
  int rank = 0;
  int world_size = 1;
  std::string address;  // under which the others reach the listener: numeric, "host:port"
  Exchange exchange;    // a world of one needs none
  std::string token;    // the job's secret, kTokenBytes raw bytes; a world of one needs none
  std::string job_id;
  /// Endpoints to make, each with connections of its own. Where some are used less than others,
  /// they should be the last.
  int lanes = 1;
  /// What an endpoint keeps of the messages of a peer that nobody waits for, one message more or
  /// less: beyond it they stay with the sender while no receive from it is posted.
  std::size_t kept_bytes = kDefaultKeptBytes;
  TransportChoice transport = TransportChoice::kAuto;
  /// Ranks that say the same are taken to be on one host. Empty: the system is asked.
  std::string host;
  std::chrono::nanoseconds timeout = kDefaultTimeout;
  /// How this rank waits. Where ranks of one host do not all have a core each, none of those that
  /// share memory spins.
  WaitPolicy wait;
  int cores = std::numeric_limits<int>::max();  // that all ranks of this host may use together
  SignaturePrinter describe = nullptr;          // words for error messages
  Logger logger;                                // nullptr: silence
};

/// The endpoints of all lanes. kTimeout names the ranks that did not come and why, as far as is
/// known; kUnauthenticated if the process at a rank's address does not know the token;
/// kUnavailable, naming a pair and the reason, where shared memory was demanded and cannot be had;
/// kIo on every rank, before any connection is made, if one of them has too few descriptors;
/// kInvalidArgument for impossible options; errors of `exchange` as they are.
Result<std::vector<std::unique_ptr<Endpoint>>> connect_mesh(TcpListener listener,
                                                            const MeshOptions& options);

}  // namespace dlaunch
