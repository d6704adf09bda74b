// FakeStream: a stream of a FakeDevice, a thread that works off a queue.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "runtime/device/device.h"

namespace dlaunch::testing {

/// What streams have recorded instead of doing it, in the order of the calls; one stream does it
/// all when it is repeated.
struct FakeRecording {
  using Action = std::function<void()>;
  std::mutex mutex;
  std::vector<Action> actions;
  std::atomic<bool> ended{false};
};

class FakeEvent final : public DeviceEvent {
 public:
  explicit FakeEvent(std::shared_ptr<FakeRecording> of = nullptr) : recording(std::move(of)) {}
  Result<bool> done() const override { return passed->load(); }
  std::shared_ptr<std::atomic<bool>> passed = std::make_shared<std::atomic<bool>>(false);
  /// What it was recorded into; null: a stream passes it.
  const std::shared_ptr<FakeRecording> recording;
};

class FakeStream final : public DeviceStream {
 public:
  FakeStream() = default;
  /// What is queued is not done any more.
  ~FakeStream() override;

  Status copy(void* to, const void* from, std::size_t bytes) override;
  Status reduce(ReduceOp op, DType dtype, void* into, std::span<const void* const> operands,
                std::size_t count, int divisor) override;
  Status flags(std::span<const FlagAction> actions) override;
  Status call(std::function<void()> function) override;
  Result<std::shared_ptr<DeviceEvent>> record() override;
  Status wait(const DeviceEvent& event) override;
  bool capturing() const override;
  void* native() const override { return const_cast<FakeStream*>(this); }

  /// An event behind what is queued, also while calls are recorded.
  std::shared_ptr<FakeEvent> record_now();
  /// From now on calls are recorded, also those on streams that wait for an event of this one.
  void begin_capture();
  std::shared_ptr<FakeRecording> end_capture();
  void replay(const FakeRecording& recording);

 private:
  using Action = FakeRecording::Action;

  std::shared_ptr<FakeRecording> recording() const;
  Status queue(Action action);
  void queue_now(Action action);
  void run();
  template <typename Condition>
  void wait_until(const Condition& condition);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Action> queue_;
  std::shared_ptr<FakeRecording> recording_;  // that this stream has begun
  std::weak_ptr<FakeRecording> followed_;     // that another one has
  std::atomic<bool> stopping_{false};
  std::minstd_rand random_{std::random_device{}()};  // the thread's
  std::thread thread_;                               // from the first action on
};

}  // namespace dlaunch::testing
