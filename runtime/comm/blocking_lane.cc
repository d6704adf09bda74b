#include "runtime/comm/blocking_lane.h"

#include <utility>

namespace dlaunch {

Status BlockingLane::run(const CollectiveCall& call, std::chrono::nanoseconds timeout) {
  const std::scoped_lock lock(mutex_);
  if (failure_.failed()) return failure_.status().within("the communicator failed earlier");
  Result<std::unique_ptr<Operation>> prepared = lane_.prepare(call, timeout);
  if (!prepared.ok()) return prepared.status();
  std::unique_ptr<Operation> operation = *std::move(prepared);
  lane_.show(operation.get());
  lane_.start(*operation);
  while (!lane_.drive(*operation, kThisThread)) {
    if (failure_.failed()) {
      lane_.endpoint().fail(failure_.status());
    } else {
      lane_.endpoint().poll(Lane::next_check(*operation), operation->also());
    }
  }
  Status status = lane_.result(*operation);
  lane_.recycle(std::move(operation));
  return status;
}

void BlockingLane::fail() {
  lane_.endpoint().wake();  // whoever holds the mutex sees the failure and lets go
  const std::scoped_lock lock(mutex_);
  lane_.endpoint().fail(failure_.status());
}

}  // namespace dlaunch
