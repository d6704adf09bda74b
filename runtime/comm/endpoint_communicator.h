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
#include "runtime/comm/part_name.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// Endpoints that a communicator needs: one per LaneKind, in that order, and one for announcements.
inline constexpr int kCommunicatorLanes = static_cast<int>(kLaneKinds) + 1;

using Lanes = std::vector<std::unique_ptr<Endpoint>>;

/// What connects some ranks of the world among themselves, as a new communicator. All members ask
/// for the same but for their own index.
struct LaneRequest {
  std::span<const int> members;  // rank i of the new communicator is members[i] of the world
  std::span<const int> called;   // and called[i] in error messages
  int my_index = 0;              // which of them this rank is
  std::string name;              // used once
  PartName part;                 // explains errors in the numbers of the new communicator
  std::chrono::nanoseconds timeout = kDefaultTimeout;
};

struct ConnectedLanes {
  Lanes lanes;
  /// Removes what connecting has left, which members may need until all are connected. nullptr:
  /// nothing, or another member does.
  std::function<void()> tidy_up = nullptr;
};

/// Makes the lanes. Any thread.
using LaneFactory = std::function<Result<ConnectedLanes>(const LaneRequest& request)>;

struct CommunicatorOptions {
  std::chrono::nanoseconds timeout = kDefaultTimeout;
  ReduceOrder reduce_order = ReduceOrder::kAny;
  std::shared_ptr<const Tuning> tuning;  // the same on all ranks; nullptr: see PlanCache
  LaneFactory make_lanes;                // for split(), which without it is kUnavailable
  std::string name = "world";            // begins the names of its parts
  PartName part;                         // explains its errors, if it is one itself
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
