#include "runtime/device/device_watch.h"

#include <algorithm>
#include <utility>

#include "runtime/comm/call_signature.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

constexpr auto kWatchLook = 20ms;
constexpr auto kReleaseLook = 1ms;
constexpr auto kBetweenBeats = 100ms;
// What a rank that leaves has queued it has also finished; its peers finish at about that time.
constexpr auto kAfterGoodbye = 1s;
// For a stream to do something more after a failure, longer than any step that is repeated takes;
// one that has not by then never will.
constexpr auto kLongestRelease = 30s;
constexpr std::chrono::nanoseconds kWatchTimeout = std::chrono::hours(24 * 365);

std::string in_seconds(std::chrono::nanoseconds duration) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count() / 100;
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) +
         " s";
}

}  // namespace

DeviceWatch::DeviceWatch(std::shared_ptr<DeviceCore> core, std::unique_ptr<Communicator> control,
                         DevicePath* path, std::string path_name, std::vector<Communicator*> hosts,
                         LaneLocks& lanes)
    : core_(std::move(core)),
      control_(std::move(control)),
      path_(path),
      path_name_(std::move(path_name)),
      hosts_(std::move(hosts)),
      lanes_(lanes) {
  if (control_ != nullptr) control_->set_timeout(kWatchTimeout);
  thread_ = std::thread([this] { run(); });
}

DeviceWatch::~DeviceWatch() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (core_->failure.failed()) tell();
}

void DeviceWatch::fail(const Status& why) {
  if (core_->failure.set(why)) changed_.notify_all();
}

void DeviceWatch::add(DeviceLane lane, WatchedOperation operation) {
  const std::scoped_lock lock(mutex_);
  queues_[static_cast<std::size_t>(lane)].push_back({std::move(operation), std::nullopt});
}

bool DeviceWatch::drain() {
  std::unique_lock lock(mutex_);
  // The thread empties the queues: operations end, or their time is over.
  const auto over = [this] { return idle() || core_->failure.failed(); };
  while (!over()) changed_.wait_for(lock, kWatchLook, over);
  // Kernels that are queued between the collectives are done, so many may take a while.
  for (std::size_t before = queued() + 1; queued() > 0 && queued() < before;) {
    before = queued();
    (void)changed_.wait_for(lock, kLongestRelease, [&] { return queued() < before; });
  }
  return queued() == 0;
}

std::size_t DeviceWatch::queued() const {
  std::size_t count = 0;
  for (const auto& queue : queues_) count += queue.size();
  return count;
}

bool DeviceWatch::idle() const {
  return std::ranges::all_of(queues_, [](const auto& queue) { return queue.empty(); });
}

void DeviceWatch::run() {
  core_->device->enter_thread();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Status status = look();
    if (!status.ok()) core_->failure.set(status);
    const bool failed = core_->failure.failed();
    const bool busy = !idle();
    if (!busy) changed_.notify_all();
    if (!failed && !busy) {
      lock.unlock();
      let_go();
      lock.lock();
    }
    if (failed) {
      lock.unlock();
      tell();
      if (path_ != nullptr) path_->release();
      lock.lock();
    }
    changed_.wait_for(lock, failed && busy ? kReleaseLook : kWatchLook,
                      [&] { return stopping_ || (!failed && core_->failure.failed()); });
  }
}

// With the lock. The first thing that is wrong.
Status DeviceWatch::look() {
  Status status;
  for (const DeviceLane lane : kAllDeviceLanes) {
    const Status of_lane = look_at(lane, queues_[static_cast<std::size_t>(lane)]);
    if (status.ok()) status = of_lane;
  }
  if (core_->failure.failed() || !status.ok()) return status;
  if (path_ != nullptr) status = path_->check();
  return status.ok() ? beat() : status;
}

Status DeviceWatch::look_at(DeviceLane lane, std::deque<Queued>& queue) {
  while (!queue.empty()) {
    Queued& head = queue.front();
    const Result<bool> ended = head.operation.ended->done();
    if (!ended.ok()) {
      Status status = ended.status().within(name_of(head.operation));
      queue.clear();  // the device will not do anything any more
      return status;
    }
    if (!*ended) return overdue_at(lane, head);
    head.operation.end_time->set();
    queue.pop_front();
  }
  return Status();
}

Status DeviceWatch::overdue_at(DeviceLane lane, Queued& head) {
  if (!head.begun.has_value()) {
    const Result<bool> begun = head.operation.begun->done();
    if (!begun.ok()) return begun.status().within(name_of(head.operation));
    if (*begun) head.begun = Clock::now();
    return Status();
  }
  const Clock::time_point now = Clock::now();
  const std::chrono::nanoseconds timeout = core_->timeout.load();
  if (now - *head.begun > timeout) {
    const auto awaited = awaited_by(lane, head.operation);
    const std::string text = "timed out after " + in_seconds(timeout) + " on the device";
    const Status why = awaited.has_value()
                           ? Status::about_peer(StatusCode::kTimeout, *awaited, text)
                           : Status(StatusCode::kTimeout, text);
    return why.within(name_of(head.operation));
  }
  if (left_.has_value() && now - std::max(*head.begun, left_at_) > kAfterGoodbye) {
    return Status::about_peer(StatusCode::kPeerLeft, *left_, "closed its communicator")
        .within(name_of(head.operation));
  }
  return Status();
}

// A recording has calls of all lanes.
std::optional<int> DeviceWatch::awaited_by(DeviceLane lane,
                                           const WatchedOperation& operation) const {
  if (path_ == nullptr) return std::nullopt;
  auto awaited = path_->awaited(lane);
  if (operation.signature.has_value()) return awaited;
  for (const DeviceLane other : kAllDeviceLanes) {
    if (!awaited.has_value()) awaited = path_->awaited(other);
  }
  return awaited;
}

std::string DeviceWatch::name_of(const WatchedOperation& operation) const {
  const std::string name = operation.signature.has_value()
                               ? describe_numbered(*operation.signature, operation.sequence)
                               : "recorded calls, repeat #" + std::to_string(operation.sequence);
  return name + " over " + path_name_;
}

Status DeviceWatch::beat() {
  if (control_ == nullptr || left_.has_value()) return Status();
  if (!beat_.has_value()) {
    if (Clock::now() < next_beat_) return Status();
    beat_ = control_->start_barrier();
  }
  if (!beat_->done()) return Status();
  Status status = beat_->wait(0ns);
  beat_.reset();
  next_beat_ = Clock::now() + kBetweenBeats;
  if (status.code() != StatusCode::kPeerLeft) return status;
  left_ = status.peer();
  left_at_ = Clock::now();
  return Status();
}

// A rank that has left waits for this one to close its memory. What was queued before it left may
// still read there; nothing new can be done without it.
void DeviceWatch::let_go() {
  if (path_ == nullptr || has_let_go_) return;
  const std::optional<int> leaver = path_->leaver();
  if (!leaver.has_value() || std::try_lock(lanes_[0], lanes_[1], lanes_[2]) != -1) return;
  const std::scoped_lock queueing(std::adopt_lock, lanes_[0], lanes_[1], lanes_[2]);
  const std::scoped_lock lock(mutex_);
  if (!idle() || keeps_memory_) return;
  path_->let_go(Status::about_peer(StatusCode::kPeerLeft, *leaver, "closed its communicator"));
  has_let_go_ = true;
}

// Once. Not with the lock: peers' threads and callers go on meanwhile.
void DeviceWatch::tell() {
  if (std::exchange(told_, true)) return;
  const Status why = core_->failure.status();
  if (control_ != nullptr) control_->abort(why);
  for (Communicator* const host : hosts_) host->abort(why);
}

}  // namespace dlaunch
