#include "runtime/comm/async_lane.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

namespace dlaunch {
namespace {

// Messages that wait are looked after together: every time costs a look at each of them, and there
// may be very many whose times differ. It makes their deadlines that much later.
constexpr std::chrono::milliseconds kBetweenLooks{20};

}  // namespace

void AsyncLane::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  if (!thread_.joinable()) return;
  changed_.notify_one();
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
  const auto close = [&](const std::unique_ptr<Operation>& operation) {
    operation->outcome->set(closed.within(operation->name()));
  };
  std::ranges::for_each(in_flight_, close);
  for (const auto& queue : queues_) std::ranges::for_each(queue, close);
  std::ranges::for_each(messages_, close);
  std::ranges::for_each(submitted_, close);
}

// --- calls

// Kept until the communicator is destroyed. Under mutex_.
Status AsyncLane::need_thread() {
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { make_progress(); });
  } catch (const std::system_error& error) {
    return Status(StatusCode::kIo,
                  std::string("cannot start the progress thread: ") + error.what());
  }
  return Status();
}

template <typename Call>
Work AsyncLane::submit(const Call& call, std::chrono::nanoseconds timeout) {
  auto outcome = std::make_shared<Outcome>();
  std::unique_lock lock(mutex_);
  if (failure_.failed()) return Work::finished(earlier_failure());
  if (Status failure = need_thread(); !failure.ok()) return Work::finished(failure);
  Result<std::unique_ptr<Operation>> prepared = lane_.prepare(call, timeout);
  if (!prepared.ok()) {
    lock.unlock();
    on_failure_(prepared.status());
    return Work::finished(prepared.status());
  }
  submitted_.push_back(*std::move(prepared));
  submitted_.back()->outcome = outcome;
  any_submitted_.store(true, std::memory_order_release);
  lane_.set_driven(true);
  lock.unlock();
  changed_.notify_one();
  lane_.endpoint().wake();
  return Work(std::move(outcome));
}

Work AsyncLane::start(const CollectiveCall& call, std::chrono::nanoseconds timeout) {
  return submit(call, timeout);
}

Work AsyncLane::start(const MessageCall& call, std::chrono::nanoseconds timeout) {
  Seat seat(seat_, std::try_to_lock);
  if (!seat.owns_lock()) return submit(call, timeout);
  if (failure_.failed()) return Work::finished(earlier_failure());
  {
    const std::scoped_lock lock(mutex_);
    if (Status failure = need_thread(); !failure.ok()) return Work::finished(failure);
  }
  std::unique_ptr<Operation> operation = begin(call, timeout);
  if (!lane_.drive(*operation, kNoThread)) {
    auto outcome = std::make_shared<Outcome>();
    operation->outcome = outcome;
    keep(std::move(operation));
    leave(std::move(seat));
    return Work(std::move(outcome));
  }
  Status status = end(std::move(operation));
  leave(std::move(seat));
  if (!status.ok()) on_failure_(status);
  return Work::finished(std::move(status));
}

Status AsyncLane::run(const MessageCall& call, std::chrono::nanoseconds timeout) {
  Seat seat(seat_, std::try_to_lock);
  if (!seat.owns_lock()) return submit(call, timeout).wait();
  if (failure_.failed()) return earlier_failure();
  take_submitted();
  lane_.prepare(*own_, call, timeout);
  lane_.start(*own_);
  lane_.show(own_.get());
  while (!lane_.drive(*own_, kThisThread)) {
    if (const Status why = known_failure(); !why.ok()) {
      lane_.endpoint().fail(why);
      continue;
    }
    lane_.endpoint().poll(earliest(Lane::next_check(*own_), next_check()), this);
    take_submitted();
    drive_all();
  }
  Status status = lane_.result(*own_);
  lane_.show(nullptr);
  leave(std::move(seat));
  return status;
}

// Starts a message, and before it what was submitted before.
std::unique_ptr<Operation> AsyncLane::begin(const MessageCall& call,
                                            std::chrono::nanoseconds timeout) {
  take_submitted();
  std::unique_ptr<Operation> operation;
  {
    const std::scoped_lock lock(mutex_);
    operation = lane_.prepare(call, timeout);
  }
  lane_.start(*operation);
  return operation;
}

Status AsyncLane::end(std::unique_ptr<Operation> operation) {
  Status status = lane_.result(*operation);
  const std::scoped_lock lock(mutex_);
  lane_.recycle(std::move(operation));
  return status;
}

// What fails the communicator, as far as this lane knows: it may be told only when the seat is
// given up, and whoever has it must not wait for anything else until then.
Status AsyncLane::known_failure() const {
  return failure_.failed() || failed_.empty() ? failure_.status() : failed_.front().status;
}

// Gives the seat up, and what is in flight to the progress thread.
void AsyncLane::leave(Seat seat) {
  if (idle() && failed_.empty()) return;
  const std::vector<Ended> failed = std::exchange(failed_, {});
  const bool work_left = !idle();
  if (work_left) {
    const std::scoped_lock lock(mutex_);
    work_left_ = true;
    lane_.set_driven(true);
  }
  seat.unlock();
  if (work_left) changed_.notify_one();
  // The communicator is to have failed before anybody hears of it.
  if (!failed.empty()) on_failure_(failed.front().status);
  for (const Ended& ended : failed) ended.outcome->set(ended.status);
}

void AsyncLane::fail() {
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_) return;  // the destructor tells the peers
  }
  lane_.endpoint().wake();  // whoever has the seat sees the failure and gives it up
  Seat seat(seat_);
  lane_.endpoint().fail(failure_.status());
  leave(std::move(seat));
}

// --- the progress thread

// False when the lane is being destroyed.
bool AsyncLane::wait_for_work() {
  std::unique_lock lock(mutex_);
  if (!work_left_ && submitted_.empty()) lane_.set_driven(false);
  changed_.wait(lock, [this] { return stopping_ || work_left_ || !submitted_.empty(); });
  work_left_ = false;
  return !stopping_;
}

void AsyncLane::make_progress() {
  const Bystanders::Stay stay(bystanders_);
  while (wait_for_work()) {
    Seat seat(seat_);
    take_submitted();
    if (failure_.failed()) lane_.endpoint().fail(failure_.status());
    drive_all();
    if (!idle() && failed_.empty()) lane_.endpoint().poll(next_check(), this);
    leave(std::move(seat));
  }
}

void AsyncLane::take_submitted() {
  if (!any_submitted_.load(std::memory_order_acquire)) return;
  std::vector<std::unique_ptr<Operation>> arrived;
  {
    const std::scoped_lock lock(mutex_);
    std::swap(arrived, submitted_);
    any_submitted_.store(false, std::memory_order_relaxed);
  }
  for (std::unique_ptr<Operation>& operation : arrived) {
    lane_.start(*operation);
    if (operation->is_collective()) {
      const auto channel = static_cast<std::size_t>(operation->shared_assignment.channel);
      if (operation->shared) {
        queues_[channel].push_back(std::move(operation));
      } else {
        in_flight_.push_back(std::move(operation));
      }
    } else if (lane_.drive(*operation, operation->outcome->waiter())) {
      finish(std::move(operation));
    } else {
      keep(std::move(operation));
    }
  }
}

// A message that has been driven once and has not ended.
void AsyncLane::keep(std::unique_ptr<Operation> message) {
  next_look_ = earliest(next_look_, Lane::next_check(*message));
  message->message.ended = &ended_;
  messages_.push_back(std::move(message));
  messages_.back()->place = std::prev(messages_.end());
}

void AsyncLane::finish(std::unique_ptr<Operation> operation) {
  std::shared_ptr<Outcome> outcome = operation->outcome;
  Status status = end(std::move(operation));
  if (status.ok()) {
    outcome->set(std::move(status));
  } else {
    failed_.push_back({std::move(outcome), std::move(status)});
  }
}

// True, and it is gone, if it has ended.
bool AsyncLane::drive(std::unique_ptr<Operation>& collective, pid_t waiter) {
  if (!lane_.drive(*collective, waiter)) return false;
  finish(std::move(collective));
  return true;
}

void AsyncLane::drive_all() {
  finish_ended();
  if (!messages_.empty() && next_look_.expired()) look_after_messages();
  for (auto& operation : in_flight_) (void)drive(operation, operation->outcome->waiter());
  std::erase_if(in_flight_, [](const auto& operation) { return operation == nullptr; });
  for (auto& queue : queues_) {
    while (!queue.empty() && drive(queue.front(), waiter_of(queue))) queue.pop_front();
  }
  if (const Operation* const shown = oldest(); shown != nullptr) lane_.show(shown);
}

// Who waits for the last waits for the first, too.
pid_t AsyncLane::waiter_of(const Queue& queue) {
  const pid_t waiter = queue.front()->outcome->waiter();
  return waiter != kNoThread ? waiter : queue.back()->outcome->waiter();
}

// Calls function(operation) for every collective that drive_all() drives.
template <typename Function>
void AsyncLane::for_driven(const Function& function) const {
  for (const auto& operation : in_flight_) function(*operation);
  for (const auto& queue : queues_) {
    if (!queue.empty()) function(*queue.front());
  }
}

// What is shown: the first collective, or else a message.
const Operation* AsyncLane::oldest() const {
  const Operation* first = nullptr;
  for_driven([&](const Operation& each) {
    if (first == nullptr || each.sequence < first->sequence) first = &each;
  });
  if (first == nullptr && !messages_.empty()) first = messages_.front().get();
  return first;
}

bool AsyncLane::idle() const {
  return in_flight_.empty() && messages_.empty() &&
         std::ranges::all_of(queues_, [](const auto& queue) { return queue.empty(); });
}

void AsyncLane::finish_ended() {
  for (Transfer* const transfer : std::exchange(ended_, {})) {
    const auto place = static_cast<Operation::Message*>(transfer)->operation.place;
    std::unique_ptr<Operation> operation = std::move(*place);
    messages_.erase(place);
    (void)lane_.drive(*operation, kNoThread);  // counts it
    finish(std::move(operation));
  }
}

// Those that have waited for long: at their deadline, or to look around.
void AsyncLane::look_after_messages() {
  Deadline next = Deadline::after(std::chrono::hours(1));
  for (const std::unique_ptr<Operation>& message : messages_) {
    if (lane_.drive(*message, message->outcome->waiter())) continue;
    next = earliest(next, Lane::next_check(*message));
  }
  next_look_ = next.remaining() < kBetweenLooks ? Deadline::after(kBetweenLooks) : next;
  finish_ended();
}

bool AsyncLane::ready() const {
  return std::ranges::any_of(
      queues_, [](const auto& queue) { return !queue.empty() && queue.front()->also()->ready(); });
}

int AsyncLane::awaited_member() const {
  int awaited = kNoMember;
  for (const auto& queue : queues_) {
    if (queue.empty()) continue;
    const int member = queue.front()->also()->awaited_member();
    if (awaited != kNoMember && member != awaited) return kAnyMember;
    awaited = member;
  }
  return awaited;
}

Deadline AsyncLane::next_check() const {
  Deadline next = messages_.empty() ? Deadline::after(std::chrono::hours(1)) : next_look_;
  for_driven([&](const Operation& each) { next = earliest(next, Lane::next_check(each)); });
  return next;
}

}  // namespace dlaunch
