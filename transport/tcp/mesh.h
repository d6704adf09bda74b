// connect_mesh: connects every rank of a job with every other one over TCP.
//
// A rank opens its TcpListener, publishes the address by some means of its caller (the rendezvous
// store), collects everybody's and calls connect_mesh. The higher rank of a pair connects to the
// lower. Connections that do not prove the job's token, half-open ones, garbage and second comers
// are dropped with a line in the log and disturb nobody.
//
// To be called once per listener, from any thread; it blocks until all ranks are connected or the
// time is up.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/logging.h"
#include "runtime/base/status.h"
#include "transport/endpoint.h"
#include "transport/tcp/listener.h"

namespace dlaunch {

struct MeshOptions {
  int rank = 0;
  int world_size = 1;
  std::vector<std::string> addresses;  // "host:port" of every rank's listener, by rank
  std::string token;                   // the job's secret, kTokenBytes raw bytes; a world of one
                                       // needs none
  std::string job_id;
  int lanes = 1;  // endpoints to make, each with connections of its own
  std::chrono::nanoseconds timeout = kDefaultTimeout;
  /// How long an endpoint polls before it sleeps. Zero where ranks outnumber cores.
  std::chrono::nanoseconds spin{0};
  SignaturePrinter describe = nullptr;  // words for error messages
  Logger logger;                        // nullptr: silence
};

/// The endpoints of all lanes. kTimeout names the ranks that did not come and why, as far as is
/// known; kUnauthenticated if the process at a rank's address does not know the token;
/// kInvalidArgument for impossible options.
Result<std::vector<std::unique_ptr<Endpoint>>> connect_mesh(TcpListener listener,
                                                            const MeshOptions& options);

}  // namespace dlaunch
