// The Communicator over endpoints of any transport: one for blocking calls, one for asynchronous
// ones. connect_world() makes it over TCP; tests make it over the loopback network, with threads as
// ranks.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/comm/communicator.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// Endpoints that a communicator needs: lane 0 for blocking, lane 1 for asynchronous calls.
inline constexpr int kCommunicatorLanes = 2;

struct CommunicatorOptions {
  std::chrono::nanoseconds timeout = kDefaultTimeout;
};

/// `lanes` has kCommunicatorLanes endpoints of the same rank and world, else kInvalidArgument.
/// Sends nothing. The endpoints describe signatures with describe_signature
/// (collective/signature.h), or mismatches are told in numbers.
Result<std::unique_ptr<Communicator>> make_communicator(
    std::vector<std::unique_ptr<Endpoint>> lanes, const CommunicatorOptions& options = {});

}  // namespace dlaunch
