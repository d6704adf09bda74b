// SharedDevice: what MemoryPath queues for ranks that share a device whose processes take turns, as
// a GPU's do without MPS: one runs until its stream waits for a flag that is not there, then the
// next one does. One stream per rank; flags are the real ones, nothing is copied or reduced.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "runtime/device/memory_path.h"
#include "tests/device/fake_device.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {

/// Keeps the actions on flags that are queued, to be done by run().
class FlagStream final : public DeviceStream {
 public:
  Status copy(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) override {
    return Status();
  }
  Status reduce(ReduceOp /*op*/, DType /*dtype*/, void* /*into*/,
                std::span<const void* const> /*operands*/, std::size_t /*count*/,
                int /*divisor*/) override {
    return Status();
  }
  Status flags(std::span<const FlagAction> actions) override {
    queue_.insert(queue_.end(), actions.begin(), actions.end());
    return Status();
  }
  Status call(std::function<void()> /*function*/) override { return not_used(); }
  Result<std::shared_ptr<DeviceEvent>> record() override { return not_used(); }
  Status wait(const DeviceEvent& /*event*/) override { return not_used(); }
  std::uint64_t recording() const override { return 0; }
  void* native() const override { return nullptr; }

  /// Until it waits or all is done. Whether anything was done but waiting.
  bool run() {
    bool did = false;
    for (; done_ < queue_.size(); ++done_) {
      const FlagAction& action = queue_[done_];
      const std::atomic_ref<std::uint32_t> flag(*action.flag);
      if (action.kind == FlagAction::Kind::kWrite) {
        flag = action.value;
        did = true;
      } else if (flag != action.value) {
        break;
      }
    }
    return did;
  }
  bool is_done() const { return done_ == queue_.size(); }
  /// Queues everything once more, as a recording that is repeated.
  void repeat() {
    const std::vector<FlagAction> recorded = queue_;
    (void)flags(recorded);
  }

 private:
  static Status not_used() { return Status(StatusCode::kUnavailable, "a stream of flags alone"); }

  std::vector<FlagAction> queue_;
  std::size_t done_ = 0;
};

/// One thread uses it.
class SharedDevice {
 public:
  SharedDevice(int world, const MemoryPathOptions& options)
      : ranks_(static_cast<std::size_t>(world)) {
    run_threads_as_ranks(world, [&](Communicator& host) {
      Rank& rank = of(host.rank());
      rank.path = connect_memory_path(host, rank.device, options).value_or_throw();
    });
  }
  // All at once, as each waits for the others.
  ~SharedDevice() {
    std::vector<std::thread> threads;
    for (Rank& rank : ranks_) threads.emplace_back([&rank] { rank.path.reset(); });
    for (std::thread& thread : threads) thread.join();
  }
  SharedDevice(const SharedDevice&) = delete;
  SharedDevice& operator=(const SharedDevice&) = delete;

  int world() const { return static_cast<int>(ranks_.size()); }
  DevicePath& path(int rank) { return *of(rank).path; }
  FlagStream& stream(int rank) { return of(rank).stream; }

  /// Queues a sum of floats on one rank.
  void all_reduce(int rank, std::size_t floats, DeviceLane lane = DeviceLane::kBlocking) {
    if (floats > memory_.size()) memory_.resize(floats);
    const Buffer buffer(memory_.data(), floats, DType::kF32);
    const CollectiveCall call{
        .kind = CollectiveKind::kAllReduce, .input = buffer, .output = buffer};
    throw_if_error(path(rank).enqueue(call, lane, stream(rank)));
  }
  void all_reduce_on_all(std::size_t floats, DeviceLane lane = DeviceLane::kBlocking) {
    for (int rank = 0; rank < world(); ++rank) all_reduce(rank, floats, lane);
  }
  void repeat_on_all() {
    for (Rank& rank : ranks_) rank.stream.repeat();
  }

  /// Ranks run in their order, again and again, until none can. The number of turns: of runs in
  /// which something was done.
  int take_turns() {
    int turns = 0;
    for (int before = -1; before != turns;) {
      before = turns;
      for (Rank& rank : ranks_) turns += rank.stream.run() ? 1 : 0;
    }
    return turns;
  }
  bool all_done() const {
    return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.stream.is_done(); });
  }

 private:
  struct Rank {
    FakeDevice device;
    std::unique_ptr<DevicePath> path;
    FlagStream stream;
  };
  Rank& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  std::vector<Rank> ranks_;
  std::vector<float> memory_;  // nobody looks into it
};

}  // namespace dlaunch::testing
