#include "runtime/comm/endpoint_communicator.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "runtime/base/process_mark.h"
#include "runtime/collective/signature.h"
#include "runtime/comm/async_lane.h"
#include "runtime/comm/blocking_lane.h"
#include "runtime/comm/bystanders.h"
#include "runtime/comm/shared_heap.h"
#include "runtime/comm/split.h"
#include "runtime/comm/validation.h"
#include "transport/failure_state.h"
#include "transport/loopback/loopback.h"
#include "transport/shm/shared_group.h"

namespace dlaunch {
namespace {

constexpr std::chrono::nanoseconds kLongestTimeout = std::chrono::hours(24 * 365);
// How long a rank that leaves waits for the receivers of its messages.
constexpr std::chrono::nanoseconds kLongestLeave = std::chrono::seconds(30);

class EndpointCommunicator final : public Communicator {
 public:
  EndpointCommunicator(Lanes lanes, const CommunicatorOptions& options)
      : rank_(lanes[0]->rank()),
        size_(lanes[0]->world_size()),
        options_(options),
        reduce_order_(options.reduce_order),
        heap_(shared_heap(*lanes[0])),
        parts_(std::make_unique<Parts>(*this, std::move(lanes))) {
    set_timeout(options.timeout);
  }
  ~EndpointCommunicator() override {
    if (!process_.is_here()) {
      // The endpoints are its parent's, and so are the threads and whatever they were doing.
      // Nothing of it may be touched, so it stays as it is.
      (void)parts_.release();
      return;
    }
    // Each one's thread may be about to tell the other one of a failure.
    parts_->async.stop();
    parts_->high.stop();
    if (heap_ != nullptr) heap_->close();
    parts_->async.linger(std::min(timeout(), kLongestLeave));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status run(const CollectiveCall& call) override {
    DLAUNCH_RETURN_IF_ERROR(check(call));
    return failed_with(parts_->blocking.run(call, timeout()));
  }

  Work start(const CollectiveCall& call) override {
    if (Status invalid = check(call); !invalid.ok()) return Work::finished(std::move(invalid));
    AsyncLane& lane = call.priority == Priority::kHigh ? parts_->high : parts_->async;
    return options_.part.explain(lane.start(call, timeout()));
  }

  Status send(ConstBuffer data, int peer, std::uint64_t tag) override {
    DLAUNCH_RETURN_IF_ERROR(check_send(data, peer));
    return failed_with(parts_->async.run(outgoing(data, peer, tag), timeout()));
  }

  Status recv(Buffer data, int peer, std::uint64_t tag, int* sender) override {
    DLAUNCH_RETURN_IF_ERROR(check_recv(data, peer));
    return failed_with(parts_->async.run(incoming(data, peer, tag, sender), timeout()));
  }

  Work start_send(ConstBuffer data, int peer, std::uint64_t tag) override {
    if (Status invalid = check_send(data, peer); !invalid.ok()) {
      return Work::finished(std::move(invalid));
    }
    return options_.part.explain(parts_->async.start(outgoing(data, peer, tag), timeout()));
  }

  Work start_recv(Buffer data, int peer, std::uint64_t tag, int* sender) override {
    if (Status invalid = check_recv(data, peer); !invalid.ok()) {
      return Work::finished(std::move(invalid));
    }
    return options_.part.explain(parts_->async.start(incoming(data, peer, tag, sender), timeout()));
  }

  Result<std::unique_ptr<Communicator>> split(int color, int key) override;

  Result<SharedMemory> allocate(std::size_t bytes) override {
    DLAUNCH_RETURN_IF_ERROR(usable_here());
    return heap_ == nullptr ? allocate_plain(bytes) : heap_->allocate(bytes);
  }

  void set_reduce_order(ReduceOrder order) override { reduce_order_ = order; }
  ReduceOrder reduce_order() const override { return reduce_order_; }

  void set_timeout(std::chrono::nanoseconds timeout) override {
    timeout_ = std::clamp(timeout, std::chrono::nanoseconds(0), kLongestTimeout);
  }

  void abort(Status why) override {
    if (!usable_here().ok()) return;
    if (why.ok()) why = Status(StatusCode::kAborted, "the communicator was aborted");
    fail(why);
  }

 private:
  struct Parts {
    Parts(EndpointCommunicator& of, Lanes lanes);
    Announcements announcements;  // destroyed last: lanes refer to it
    AsyncLane async;              // leaves when the others have, as it may take its time
    AsyncLane high;
    BlockingLane blocking;
  };

  Result<ConnectedLanes> connect_part(const CommunicatorOptions& options,
                                      const std::vector<int>& members) const;

  // Not in a child that this rank has forked: it would go on in the middle of its parent's calls.
  Status usable_here() const {
    if (process_.is_here()) return {};
    return Status(StatusCode::kInvalidArgument, "this process was forked by rank " +
                                                    std::to_string(rank_) +
                                                    ", whose communicator it cannot use");
  }

  Status check(const CollectiveCall& call) const {
    DLAUNCH_RETURN_IF_ERROR(usable_here());
    return validate(call, rank_, size_);
  }
  Status check_send(ConstBuffer data, int peer) const {
    DLAUNCH_RETURN_IF_ERROR(usable_here());
    return validate_send(data, peer, size_);
  }
  Status check_recv(Buffer data, int peer) const {
    DLAUNCH_RETURN_IF_ERROR(usable_here());
    return validate_recv(data, peer, size_);
  }

  std::chrono::nanoseconds timeout() const { return timeout_; }

  ActivityReporter reporter(LaneKind lane) const {
    if (options_.activity == nullptr) return {};
    return options_.activity->reporter(options_.name, static_cast<int>(lane), size_);
  }

  static MessageCall outgoing(ConstBuffer data, int peer, std::uint64_t tag) {
    auto* memory = const_cast<void*>(data.data);  // only read
    return {.outgoing = true, .data = {memory, data.count, data.dtype}, .peer = peer, .tag = tag};
  }

  static MessageCall incoming(Buffer data, int peer, std::uint64_t tag, int* sender) {
    return {.data = data, .peer = peer, .tag = tag, .sender = sender};
  }

  static std::shared_ptr<SharedHeap> shared_heap(Endpoint& endpoint) {
    SharedGroup* const group = endpoint.shared_group();
    if (group == nullptr || group->heap(group->index()).empty()) return nullptr;
    return SharedHeap::over(group->heap(group->index()));
  }

  Status failed_with(const Status& status) {
    if (!status.ok()) fail(status);
    return options_.part.explain(status);
  }

  // The first failure is everybody's. Not called from inside a lane's lock.
  void fail(const Status& why) {
    if (!failure_.set(why)) return;
    parts_->announcements.fail(why);
    parts_->async.fail();
    parts_->high.fail();
    parts_->blocking.fail();
  }

  const int rank_;
  const int size_;
  const CommunicatorOptions options_;
  std::atomic<std::chrono::nanoseconds> timeout_{};
  std::atomic<ReduceOrder> reduce_order_;
  std::atomic<int> splits_{0};
  std::shared_ptr<SharedHeap> heap_;  // nullptr: no memory is shared
  FailureState failure_;
  const ProcessMark process_;
  std::unique_ptr<Parts> parts_;  // destroyed first: threads in it refer to the others
};

EndpointCommunicator::Parts::Parts(EndpointCommunicator& of, Lanes lanes)
    : announcements(std::move(lanes[kLaneKinds])),
      async(LaneKind::kAsync, std::move(lanes[1]), announcements, *of.options_.bystanders,
            of.failure_, of.options_.tuning, of.reporter(LaneKind::kAsync),
            [&of](const Status& why) { of.fail(why); }),
      high(LaneKind::kHighPriority, std::move(lanes[2]), announcements, *of.options_.bystanders,
           of.failure_, of.options_.tuning, of.reporter(LaneKind::kHighPriority),
           [&of](const Status& why) { of.fail(why); }),
      blocking(std::move(lanes[0]), announcements, *of.options_.bystanders, of.failure_,
               of.options_.tuning, of.reporter(LaneKind::kBlocking)) {}

Result<std::unique_ptr<Communicator>> EndpointCommunicator::split(int color, int key) {
  std::vector<ColorAndKey> all(static_cast<std::size_t>(size_));
  const ColorAndKey own{color, key};
  DLAUNCH_RETURN_IF_ERROR(run({.kind = CollectiveKind::kAllGather,
                               .input = {&own, 2, DType::kI64},
                               .output = {all.data(), 2 * all.size(), DType::kI64},
                               .of_split = true}));
  const int number = ++splits_;
  if (color < 0) return std::unique_ptr<Communicator>();

  const std::vector<int> members = ranks_of_color(all, color);
  CommunicatorOptions options = options_;
  options.timeout = timeout();
  options.reduce_order = reduce_order();
  if (options.tuning != nullptr) {
    options.tuning = std::make_shared<const Tuning>(
        Tuning{subset(options.tuning->topology, members), options.tuning->model});
  }
  options.name = name_of_part(options_.name, number, color);
  options.part = options_.part.of_part(options.name, members, size_);
  auto connected = connect_part(options, members);
  if (!connected.ok()) {
    return options_.part.explain(connected.status().within("split into " + options.name));
  }
  auto part = make_communicator(std::move(connected->lanes), options);
  if (!part.ok()) return part;
  // Nobody begins before all are there.
  DLAUNCH_RETURN_IF_ERROR((*part)->barrier().within("split into " + options.name));
  if (connected->tidy_up) connected->tidy_up();
  return part;
}

Result<ConnectedLanes> EndpointCommunicator::connect_part(const CommunicatorOptions& options,
                                                          const std::vector<int>& members) const {
  if (members.size() == 1) return ConnectedLanes{lanes_of_one()};
  if (!options.make_lanes) {
    return Status(StatusCode::kUnavailable, "this communicator cannot make another one");
  }
  std::vector<int> in_world;
  in_world.reserve(members.size());
  for (const int member : members) in_world.push_back(options_.part.rank_in_world(member));
  const auto index = std::ranges::find(members, rank_) - members.begin();
  return options.make_lanes({.members = in_world,
                             .called = members,
                             .my_index = static_cast<int>(index),
                             .name = options.name,
                             .part = options.part,
                             .timeout = options.timeout});
}

}  // namespace

Lanes lanes_of_one() {
  Lanes lanes;
  for (int lane = 0; lane < kCommunicatorLanes; ++lane) {
    lanes.push_back(LoopbackNetwork(1, describe_signature).endpoint(0));
  }
  return lanes;
}

Result<std::unique_ptr<Communicator>> make_communicator(Lanes lanes,
                                                        const CommunicatorOptions& options) {
  const bool alike = std::ranges::all_of(lanes, [&](const auto& lane) {
    return lane->rank() == lanes[0]->rank() && lane->world_size() == lanes[0]->world_size();
  });
  if (lanes.size() != kCommunicatorLanes || !alike) {
    return Status(StatusCode::kInvalidArgument, "a communicator needs " +
                                                    std::to_string(kCommunicatorLanes) +
                                                    " endpoints of the same rank and world");
  }
  CommunicatorOptions complete = options;
  if (complete.bystanders == nullptr) complete.bystanders = std::make_shared<Bystanders>();
  return std::unique_ptr<Communicator>(
      std::make_unique<EndpointCommunicator>(std::move(lanes), complete));
}

}  // namespace dlaunch
