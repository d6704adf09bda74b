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
// Until the device has answered, if nothing is stuck.
constexpr auto kLongestAnswer = 1s;
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
  asking_ = std::thread([this] { ask_device(); });
  meeting_ = std::thread([this] { meet_others(); });
}

DeviceWatch::~DeviceWatch() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  asking_.join();
  meeting_.join();
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
  // A thread empties the queues: operations end, or their time is over.
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

// Until `ends`, or for as long as nothing happens between two looks.
void DeviceWatch::sleep(std::unique_lock<std::mutex>& lock, const bool& ends) {
  const bool failed = core_->failure.failed();
  changed_.wait_for(lock, failed && !idle() ? kReleaseLook : kWatchLook,
                    [&] { return ends || (!failed && core_->failure.failed()); });
}

void DeviceWatch::ask_device() {
  core_->device->enter_thread();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    asks_since_ = Clock::now();
    lock.unlock();
    const Status status = look();
    if (!status.ok()) fail(status);
    lock.lock();
    asks_since_.reset();
    const bool idles = idle();
    if (idles) changed_.notify_all();
    if (idles && !core_->failure.failed()) {
      lock.unlock();
      let_go();
      lock.lock();
    }
    sleep(lock, stopping_);
  }
  asks_no_more_ = true;
  changed_.notify_all();
}

// The first thing that is wrong.
Status DeviceWatch::look() {
  Status status;
  for (const DeviceLane lane : kAllDeviceLanes) {
    const Status of_lane = look_at(lane);
    if (status.ok()) status = of_lane;
  }
  if (path_ == nullptr || core_->failure.failed() || !status.ok()) return status;
  return path_->check();
}

Status DeviceWatch::look_at(DeviceLane lane) {
  while (Queued* const head = head_of(lane)) {
    const Result<bool> ended = head->operation.ended->done();
    if (!ended.ok()) {
      Status status = ended.status().within(name_of(head->operation));
      while (head_of(lane) != nullptr) forget_head_of(lane);  // the device will not do it any more
      return status;
    }
    if (!*ended) return overdue_at(lane, *head);
    head->operation.end_time->set();
    forget_head_of(lane);
  }
  return Status();
}

// Which stays where it is, whatever is added, until this thread forgets it.
DeviceWatch::Queued* DeviceWatch::head_of(DeviceLane lane) {
  const std::scoped_lock lock(mutex_);
  auto& queue = queues_[static_cast<std::size_t>(lane)];
  return queue.empty() ? nullptr : &queue.front();
}

void DeviceWatch::forget_head_of(DeviceLane lane) {
  const std::scoped_lock lock(mutex_);
  queues_[static_cast<std::size_t>(lane)].pop_front();
}

Status DeviceWatch::overdue_at(DeviceLane lane, Queued& head) {
  if (!head.begun.has_value()) {
    const Result<bool> begun = head.operation.begun->done();
    if (!begun.ok()) return begun.status().within(name_of(head.operation));
    if (*begun) head.begun = Clock::now();
    return Status();
  }
  const Clock::time_point now = Clock::now();
  if (now - *head.begun > core_->timeout.load()) return timed_out(lane, head.operation);
  const std::scoped_lock lock(mutex_);
  if (left_.has_value() && now - std::max(*head.begun, left_at_) > kAfterGoodbye) {
    return Status::about_peer(StatusCode::kPeerLeft, *left_, "closed its communicator")
        .within(name_of(head.operation));
  }
  return Status();
}

Status DeviceWatch::timed_out(DeviceLane lane, const WatchedOperation& operation) const {
  const auto awaited = awaited_by(lane, operation);
  const std::string text =
      "timed out after " + in_seconds(core_->timeout.load()) + " on the device";
  const Status why = awaited.has_value() ? Status::about_peer(StatusCode::kTimeout, *awaited, text)
                                         : Status(StatusCode::kTimeout, text);
  return why.within(name_of(operation));
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

// A rank that has left waits for this one to close its memory. What was queued before it left may
// still read there; nothing new can be done without it.
void DeviceWatch::let_go() {
  if (path_ == nullptr || has_let_go_) return;
  const std::optional<int> leaver = path_->leaver();
  if (!leaver.has_value() || std::try_lock(lanes_[0], lanes_[1], lanes_[2]) != -1) return;
  const std::scoped_lock queueing(std::adopt_lock, lanes_[0], lanes_[1], lanes_[2]);
  {
    const std::scoped_lock lock(mutex_);  // until the lanes are let go nothing is added
    if (!idle() || keeps_memory_) return;
  }
  path_->let_go(Status::about_peer(StatusCode::kPeerLeft, *leaver, "closed its communicator"));
  has_let_go_ = true;
}

// The device is asked until all is over, which it may only come to by what is done here.
void DeviceWatch::meet_others() {
  core_->device->enter_thread();  // for a path's release()
  std::unique_lock lock(mutex_);
  while (!asks_no_more_) {
    lock.unlock();
    if (!core_->failure.failed()) {
      Status status = beat();
      if (status.ok()) status = unanswered();
      if (!status.ok()) fail(status);
    }
    if (core_->failure.failed()) {
      tell();
      if (path_ != nullptr) path_->release();
    }
    lock.lock();
    sleep(lock, asks_no_more_);
  }
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
  const std::scoped_lock lock(mutex_);
  left_ = status.peer();
  left_at_ = Clock::now();
  return Status();
}

// Nothing is known of operations while the device does not answer; that it has not for longer than
// one of them may take says enough.
Status DeviceWatch::unanswered() {
  const std::scoped_lock lock(mutex_);
  const std::chrono::nanoseconds patience = core_->timeout.load() + kLongestAnswer;
  if (!asks_since_.has_value() || Clock::now() - *asks_since_ <= patience) return Status();
  Status status;
  for (const DeviceLane lane : kAllDeviceLanes) {
    const auto& queue = queues_[static_cast<std::size_t>(lane)];
    if (queue.empty() || status.peer().has_value()) continue;
    status = timed_out(lane, queue.front().operation);
  }
  return status;
}

// Once. Not with the lock: peers' threads and callers go on meanwhile.
void DeviceWatch::tell() {
  if (std::exchange(told_, true)) return;
  const Status why = core_->failure.status();
  if (control_ != nullptr) control_->abort(why);
  for (Communicator* const host : hosts_) host->abort(why);
}

}  // namespace dlaunch
