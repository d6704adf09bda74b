// FakeStream: a stream of a FakeDevice, a thread that works off a queue.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/device/device.h"

namespace dlaunch::testing {

class FakeStream;

/// What the streams of a device share.
struct FakeContext {
  explicit FakeContext(bool passes) : passes_flags(passes) {}
  const bool passes_flags;  // else streams wait for flags for ever
  /// From then on nothing is done any more, also what was queued before, and events say so.
  std::atomic<bool> broken{false};
  /// Of who is in a call that waits for the device; events are not asked meanwhile.
  mutable std::mutex driver;

  Status status() const {
    return broken ? Status(StatusCode::kIo, "the fake device has failed") : Status();
  }
};

/// What streams have recorded instead of doing it, and what of it comes after what.
class FakeRecording {
 public:
  using Action = std::function<void()>;

  FakeRecording();

  std::uint64_t number() const { return number_; }  // as DeviceStream::recording()
  bool ended() const { return ended_; }
  void end() { ended_ = true; }
  /// Behind what this stream has recorded before, and what it was told to follow. Returns its
  /// place.
  std::size_t add(const FakeStream& stream, Action action);
  /// What `stream` records from now on comes after that place.
  void follow(const FakeStream& stream, std::size_t place);
  /// Whether everything comes after one thing at most.
  bool is_straight_line() const;
  /// All actions in one of the orders that are allowed, another one every time: as the device that
  /// does what is independent one after the other as it likes.
  std::vector<Action> in_some_order() const;

 private:
  struct Node {
    Action action;
    std::vector<std::size_t> after;
  };

  const std::uint64_t number_;
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  mutable std::minstd_rand random_{std::random_device{}()};
  std::vector<Node> nodes_;
  std::map<const FakeStream*, std::vector<std::size_t>> next_after_;  // of a stream's next action
};

class FakeEvent final : public DeviceEvent {
 public:
  explicit FakeEvent(std::shared_ptr<const FakeContext> context) : context_(std::move(context)) {}
  FakeEvent(std::shared_ptr<const FakeContext> context, const std::shared_ptr<FakeRecording>& of,
            std::size_t at)
      : recorded(true), recording(of), place(at), context_(std::move(context)) {}
  Result<bool> done() const override {
    const std::scoped_lock lock(context_->driver);
    DLAUNCH_RETURN_IF_ERROR(context_->status());
    return passed->load();
  }
  std::shared_ptr<std::atomic<bool>> passed = std::make_shared<std::atomic<bool>>(false);
  const bool recorded = false;                   // else a stream passes it
  const std::weak_ptr<FakeRecording> recording;  // into which
  const std::size_t place = 0;                   // there

 private:
  const std::shared_ptr<const FakeContext> context_;
};

class FakeStream final : public DeviceStream {
 public:
  explicit FakeStream(std::shared_ptr<const FakeContext> context) : context_(std::move(context)) {}
  /// What is queued is not done any more.
  ~FakeStream() override;

  Status copy(void* to, const void* from, std::size_t bytes) override;
  Status reduce(ReduceOp op, DType dtype, void* into, std::span<const void* const> operands,
                std::size_t count, int divisor) override;
  Status flags(std::span<const FlagAction> actions) override;
  Status call(std::function<void()> function) override;
  Result<std::shared_ptr<DeviceEvent>> record() override;
  Status wait(const DeviceEvent& event) override;
  std::uint64_t recording() const override;
  void* native() const override { return const_cast<FakeStream*>(this); }

  /// An event behind what is queued, also while calls are recorded.
  std::shared_ptr<FakeEvent> record_now();
  /// From now on calls are recorded, also those on streams that wait for an event of this one.
  void begin_capture();
  std::shared_ptr<FakeRecording> end_capture();
  void replay(const FakeRecording& recording);

 private:
  using Action = FakeRecording::Action;

  std::shared_ptr<FakeRecording> recorded_into() const;
  Status queue(Action action);
  void queue_now(Action action);
  void run();
  template <typename Condition>
  void wait_until(const Condition& condition);

  const std::shared_ptr<const FakeContext> context_;
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
