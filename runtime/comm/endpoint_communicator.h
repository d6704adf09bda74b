// The Communicator over endpoints of any transport: one for each kind of calls and one for
// announcements. connect_world() makes it over shared memory and TCP; tests make it over the
// loopback network, with threads as ranks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/activity.h"
#include "runtime/base/deadline.h"
#include "runtime/collective/selection.h"
#include "runtime/comm/announcements.h"
#include "runtime/comm/bystanders.h"
#include "runtime/comm/communicator.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// Endpoints that a communicator needs: one per LaneKind, in that order, and one for announcements.
inline constexpr int kCommunicatorLanes = static_cast<int>(kLaneKinds) + 1;

using Lanes = std::vector<std::unique_ptr<Endpoint>>;

/// Connects some ranks of the world among themselves: the lanes of a new communicator, in which
/// this rank is `my_index` and rank i is members[i] of the world. Called by all members with the
/// same members and name; a name is used once. Any thread.
using LaneFactory = std::function<Result<Lanes>(std::span<const int> members, int my_index,
                                                const std::string& name)>;

struct CommunicatorOptions {
  std::chrono::nanoseconds timeout = kDefaultTimeout;
  ReduceOrder reduce_order = ReduceOrder::kAny;
  std::shared_ptr<const Tuning> tuning;  // the same on all ranks; nullptr: see PlanCache
  LaneFactory make_lanes;                // for split(), which without it is kUnavailable
  std::string name = "world";            // begins the names of its parts
  std::shared_ptr<Bystanders>
      bystanders;                      // of the process; nullptr: the communicator's own threads
  std::shared_ptr<Activity> activity;  // where it publishes what it is doing; nullptr: nowhere
};

/// `lanes` has kCommunicatorLanes endpoints of the same rank and world, else kInvalidArgument.
/// Sends nothing. The endpoints describe signatures with describe_signature
/// (collective/signature.h), or mismatches are told in numbers.
Result<std::unique_ptr<Communicator>> make_communicator(Lanes lanes,
                                                        const CommunicatorOptions& options = {});

/// The lanes of a communicator of one rank.
Lanes lanes_of_one();

}  // namespace dlaunch
