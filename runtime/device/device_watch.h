// DeviceWatch: notices when collectives on a device go wrong, since no host thread waits for them:
// an operation that does not end in its time, a rank that has died or left, an error of the device
// or of its library. It fails the communicator on all ranks, and lets the streams run on.
//
// The ranks' watches meet in a barrier of a communicator of their own ten times a second, by which
// they find out about deaths and tell each other about failures.
//
// These are two threads. One asks the device about events, which may not come back: while some
// other thread is in a call that waits for the device (cudaFree, the first launch of a kernel), all
// further calls may wait for that one, and so for a peer that never comes. The other asks the
// device nothing; it meets the other ranks and, after a failure, lets the streams run on.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device_core.h"
#include "runtime/device/device_path.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// When an operation on a device was seen to have ended.
class EndTime {
 public:
  void set() {
    if (!ended_.load()) {
      when_ = std::chrono::steady_clock::now();
      ended_ = true;
    }
  }
  bool ended() const { return ended_; }
  std::chrono::steady_clock::time_point when() const { return when_.load(); }

 private:
  std::atomic<std::chrono::steady_clock::time_point> when_{};
  std::atomic<bool> ended_{false};
};

/// An operation that was queued.
struct WatchedOperation {
  std::optional<MessageSignature> signature;  // none of a recording that is repeated
  std::uint64_t sequence = 0;
  std::shared_ptr<DeviceEvent> begun;  // its time runs from here
  std::shared_ptr<DeviceEvent> ended;
  std::shared_ptr<EndTime> end_time;
};

class DeviceWatch {
 public:
  /// By lane, held by who queues an operation until it is add()ed.
  using LaneLocks = std::array<std::mutex, kDeviceLanes>;

  /// `control` is the watches' own, of all ranks (nullptr in a world of one); `hosts` are failed
  /// together with the device's communicator. `path` may be nullptr. All of it but `control`
  /// outlives the watch.
  DeviceWatch(std::shared_ptr<DeviceCore> core, std::unique_ptr<Communicator> control,
              DevicePath* path, std::string path_name, std::vector<Communicator*> hosts,
              LaneLocks& lanes);
  /// Leaves in an orderly way, or tells the others of a failure.
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// Fails the communicator, here at once and soon everywhere. Never blocks. Any thread.
  void fail(const Status& why);
  /// From now on watches the operation. Any thread.
  void add(DeviceLane lane, WatchedOperation operation);
  /// Whether others' memory is needed though nothing is queued: something recorded may be repeated.
  void keep_memory(bool keep) { keeps_memory_ = keep; }
  /// Waits until nothing is queued any more, which is as long as the operations' own time. False if
  /// the device does not come to an end even when it is let go.
  bool drain();

 private:
  using Clock = std::chrono::steady_clock;
  struct Queued {
    WatchedOperation operation;
    std::optional<Clock::time_point> begun;  // when it was seen
  };

  void ask_device();
  Status look();
  Status look_at(DeviceLane lane);
  Queued* head_of(DeviceLane lane);
  void forget_head_of(DeviceLane lane);
  Status overdue_at(DeviceLane lane, Queued& head);
  void let_go();

  void meet_others();
  Status beat();
  Status unanswered();
  void tell();

  Status timed_out(DeviceLane lane, const WatchedOperation& operation) const;
  std::optional<int> awaited_by(DeviceLane lane, const WatchedOperation& operation) const;
  std::string name_of(const WatchedOperation& operation) const;
  bool idle() const;
  std::size_t queued() const;
  void sleep(std::unique_lock<std::mutex>& lock, const bool& ends);

  const std::shared_ptr<DeviceCore> core_;
  std::unique_ptr<Communicator> control_;
  DevicePath* const path_;
  const std::string path_name_;
  const std::vector<Communicator*> hosts_;
  LaneLocks& lanes_;

  std::atomic<bool> keeps_memory_{false};
  std::mutex mutex_;  // guards what follows; nobody calls the device with it
  std::condition_variable changed_;
  std::array<std::deque<Queued>, kDeviceLanes> queues_;
  std::optional<Clock::time_point> asks_since_;  // while the device is asked
  std::optional<int> left_;                      // a rank that has closed its communicator
  Clock::time_point left_at_{};
  bool stopping_ = false;
  bool asks_no_more_ = false;

  // Of the thread that asks the device:
  bool has_let_go_ = false;
  // Of the other one:
  std::optional<Work> beat_;
  Clock::time_point next_beat_{};
  bool told_ = false;

  std::thread asking_;
  std::thread meeting_;
};

}  // namespace dlaunch
