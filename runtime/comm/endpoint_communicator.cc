#include "runtime/comm/endpoint_communicator.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "runtime/comm/async_lane.h"
#include "runtime/comm/blocking_lane.h"
#include "runtime/comm/validation.h"
#include "transport/failure_state.h"

namespace dlaunch {
namespace {

constexpr std::chrono::nanoseconds kLongestTimeout = std::chrono::hours(24 * 365);

class EndpointCommunicator final : public Communicator {
 public:
  EndpointCommunicator(std::vector<std::unique_ptr<Endpoint>> lanes,
                       std::chrono::nanoseconds timeout)
      : rank_(lanes[0]->rank()),
        size_(lanes[0]->world_size()),
        blocking_(std::move(lanes[0]), failure_),
        async_(std::move(lanes[1]), failure_, [this](const Status& why) { fail(why); }) {
    set_timeout(timeout);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status run(const CollectiveCall& call) override {
    DLAUNCH_RETURN_IF_ERROR(validate(call, rank_, size_));
    return run_request(call);
  }

  Work start(const CollectiveCall& call) override {
    if (Status invalid = validate(call, rank_, size_); !invalid.ok()) {
      return Work::finished(std::move(invalid));
    }
    return async_.start(call, timeout());
  }

  Status send(ConstBuffer data, int peer, std::uint64_t tag) override {
    DLAUNCH_RETURN_IF_ERROR(validate_message(data, peer, size_).within("send"));
    return run_request(outgoing(data, peer, tag));
  }

  Status recv(Buffer data, int peer, std::uint64_t tag) override {
    DLAUNCH_RETURN_IF_ERROR(validate_message(data, peer, size_).within("recv"));
    return run_request(MessageCall{.data = data, .peer = peer, .tag = tag});
  }

  Work start_send(ConstBuffer data, int peer, std::uint64_t tag) override {
    if (Status invalid = validate_message(data, peer, size_).within("send"); !invalid.ok()) {
      return Work::finished(std::move(invalid));
    }
    return async_.start(outgoing(data, peer, tag), timeout());
  }

  Work start_recv(Buffer data, int peer, std::uint64_t tag) override {
    if (Status invalid = validate_message(data, peer, size_).within("recv"); !invalid.ok()) {
      return Work::finished(std::move(invalid));
    }
    return async_.start(MessageCall{.data = data, .peer = peer, .tag = tag}, timeout());
  }

  void set_timeout(std::chrono::nanoseconds timeout) override {
    timeout_ = std::clamp(timeout, std::chrono::nanoseconds(0), kLongestTimeout);
  }

  void abort(Status why) override {
    if (why.ok()) why = Status(StatusCode::kAborted, "the communicator was aborted");
    fail(why);
  }

 private:
  std::chrono::nanoseconds timeout() const { return timeout_; }

  static MessageCall outgoing(ConstBuffer data, int peer, std::uint64_t tag) {
    auto* memory = const_cast<void*>(data.data);  // only read
    return {.outgoing = true, .data = {memory, data.count, data.dtype}, .peer = peer, .tag = tag};
  }

  Status run_request(const Request& request) {
    Status status = blocking_.run(request, timeout());
    if (!status.ok()) fail(status);
    return status;
  }

  // The first failure is everybody's. Not called from inside a lane's lock.
  void fail(const Status& why) {
    if (!failure_.set(why)) return;
    async_.fail();
    blocking_.fail();
  }

  const int rank_;
  const int size_;
  std::atomic<std::chrono::nanoseconds> timeout_{};
  FailureState failure_;
  BlockingLane blocking_;
  AsyncLane async_;  // destroyed first: its thread refers to the others
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_communicator(
    std::vector<std::unique_ptr<Endpoint>> lanes, const CommunicatorOptions& options) {
  if (lanes.size() != kCommunicatorLanes || lanes[0]->rank() != lanes[1]->rank() ||
      lanes[0]->world_size() != lanes[1]->world_size()) {
    return Status(StatusCode::kInvalidArgument,
                  "a communicator needs two endpoints of the same rank and world");
  }
  return std::unique_ptr<Communicator>(
      std::make_unique<EndpointCommunicator>(std::move(lanes), options.timeout));
}

}  // namespace dlaunch
