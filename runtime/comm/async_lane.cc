#include "runtime/comm/async_lane.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

namespace dlaunch {

void AsyncLane::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  if (!thread_.joinable()) return;
  stop_requested_.notify_one();
  lane_.endpoint().wake();
  thread_.join();
}

AsyncLane::~AsyncLane() {
  stop();
  // The thread may have ended before it told the peers; a goodbye would hide the root cause.
  if (failure_.failed()) lane_.endpoint().fail(failure_.status());
  // Whoever waits may free the buffers as soon as the outcome is there, so the endpoint goes first.
  lane_.close();
  const Status closed(StatusCode::kAborted, "the communicator was destroyed");
  for (const auto* operations : {&in_flight_, &submitted_}) {
    for (const auto& operation : *operations) {
      operation->outcome->set(closed.within(operation->name()));
    }
  }
}

Work AsyncLane::submit(const std::function<std::unique_ptr<Operation>()>& prepare) {
  auto outcome = std::make_shared<Outcome>();
  {
    const std::scoped_lock lock(mutex_);
    if (failure_.failed()) {
      return Work::finished(failure_.status().within("the communicator failed earlier"));
    }
    try {
      if (!thread_.joinable()) thread_ = std::thread([this] { make_progress(); });
    } catch (const std::system_error& error) {
      return Work::finished(Status(
          StatusCode::kIo, std::string("cannot start the progress thread: ") + error.what()));
    }
    std::unique_ptr<Operation> operation = prepare();
    operation->outcome = outcome;
    submitted_.push_back(std::move(operation));
  }
  lane_.endpoint().wake();
  return Work(std::move(outcome));
}

void AsyncLane::fail() {
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_) return;  // the destructor tells the peers
    if (!thread_.joinable()) return lane_.endpoint().fail(failure_.status());
  }
  lane_.endpoint().wake();  // the progress thread does the rest
}

void AsyncLane::make_progress() {
  bool reported = false;
  while (take_submitted()) {
    if (failure_.failed()) lane_.endpoint().fail(failure_.status());
    drive_all();
    const Status failure = lane_.endpoint().failure();
    if (failure.ok()) {
      lane_.endpoint().poll(next_check(), this);
    } else if (!reported) {
      reported = true;
      on_failure_(failure);
    } else {
      rest();
    }
  }
}

// After a failure: nothing is in flight, and poll() would return at once.
void AsyncLane::rest() {
  std::unique_lock lock(mutex_);
  stop_requested_.wait(lock, [this] { return stopping_ || !submitted_.empty(); });
}

// False when the lane is being destroyed.
bool AsyncLane::take_submitted() {
  std::vector<std::unique_ptr<Operation>> arrived;
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_) return false;
    std::swap(arrived, submitted_);
  }
  for (std::unique_ptr<Operation>& operation : arrived) {
    lane_.start(*operation);
    in_flight_.push_back(std::move(operation));
  }
  return true;
}

void AsyncLane::drive_all() {
  for (std::unique_ptr<Operation>& operation : in_flight_) {
    if (!lane_.drive(*operation, callers_.only(operation->outcome->waiter()))) continue;
    const std::shared_ptr<Outcome> outcome = operation->outcome;
    const Status status = lane_.result(*operation);
    if (!status.ok() && !failure_.failed()) on_failure_(status);
    {
      const std::scoped_lock lock(mutex_);
      lane_.recycle(std::move(operation));
    }
    outcome->set(status);
  }
  std::erase_if(in_flight_, [](const auto& operation) { return operation == nullptr; });
  lane_.show(in_flight_.empty() ? nullptr : in_flight_.front().get());
}

bool AsyncLane::ready() const {
  return std::ranges::any_of(in_flight_, [](const auto& operation) {
    return operation->also() != nullptr && operation->also()->ready();
  });
}

Deadline AsyncLane::next_check() const {
  Deadline next = Deadline::after(std::chrono::hours(1));
  for (const auto& operation : in_flight_) next = earliest(next, Lane::next_check(*operation));
  return next;
}

}  // namespace dlaunch
