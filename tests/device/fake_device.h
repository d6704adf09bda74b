// FakeDevice: a Device made of threads and host memory, for what lies above the seam. Every stream
// is a thread; device memory is a file that other processes can map. With a random pause now and
// then, so that streams overtake each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/device/device.h"
#include "runtime/device/device_path.h"

namespace dlaunch::testing {

class FakeStream;
class FakeRecording;
struct FakeContext;

struct FakeDeviceOptions {
  std::uint8_t number = 0;  // equal ones are the same device
  bool shares_memory = true;
  bool reaches_others = true;
  bool has_nccl = false;  // says so
  /// As Device::connect_native; empty: connecting fails.
  std::function<Result<std::unique_ptr<DevicePath>>(Device&, Communicator&,
                                                    std::chrono::nanoseconds)>
      connect_native = {};
  bool opens_memory = true;
  bool passes_flags = true;  // else streams wait for flags for ever
  bool records_flags = true;
  /// This kernel of a recording, counted from 1, fails; if there are not so many, its end does.
  std::optional<int> unrecordable = {};
  /// Device memory in bytes; allocations beyond fail.
  std::size_t memory = std::size_t{1} << 30;
};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(const FakeDeviceOptions& options = {});
  ~FakeDevice() override;

  std::string name() const override { return "fake"; }
  DeviceUuid uuid() const override { return {options_.number}; }
  bool reaches(const DeviceUuid& other) const override {
    return other == uuid() || options_.reaches_others;
  }
  bool shares_memory() const override { return options_.shares_memory; }
  Status records_calls(const void* opened) override {
    if (options_.records_flags && opened != nullptr) return Status();
    return Status(StatusCode::kUnavailable, "flags are not recorded");
  }
  MemoryPlace place_of(const void* memory) const override;
  DeviceStream& compute() override;
  Result<std::unique_ptr<DeviceStream>> make_stream(bool high_priority) override;
  Result<std::shared_ptr<void>> allocate(std::size_t bytes) override;
  Result<std::shared_ptr<void>> allocate_pinned(std::size_t bytes) override;
  Result<std::shared_ptr<void>> pin(std::span<std::byte> memory) override;
  Result<MemoryHandle> share(void* memory) override;
  Result<std::shared_ptr<void>> open(const MemoryHandle& handle) override;
  void enter_thread() override {}
  bool has_native_path() const override { return options_.has_nccl; }
  Result<std::unique_ptr<DevicePath>> connect_native(Communicator& host,
                                                     std::chrono::nanoseconds timeout) override;

  /// Waits until the compute stream has done everything, or for ten seconds; not for what is only
  /// recorded.
  bool synchronise();
  /// The same, for half a minute, as within a call of another library's (cudaFree): until it is
  /// over nobody is told of any event.
  bool synchronise_within_the_driver();
  /// The device fails, as a GPU does by a kernel's fault: no stream does anything any more.
  void fail();
  /// Between these, calls on the compute stream and on those that wait for it are recorded;
  /// replay() does them.
  void begin_capture();
  std::shared_ptr<FakeRecording> end_capture();
  void replay(const FakeRecording& recording);
  int replays() const { return replays_; }
  std::optional<int> unrecordable() const { return options_.unrecordable; }
  /// Ranges of host memory.
  int pinned() const { return *pinned_; }
  /// Allocations that were freed while another rank had them open, which CUDA does not allow.
  int freed_while_open() const {
    const std::scoped_lock lock(mutex_);
    return freed_while_open_;
  }

 private:
  struct Allocation;

  const FakeDeviceOptions options_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Allocation> allocations_;  // by their beginning
  std::size_t in_use_ = 0;
  int replays_ = 0;
  int freed_while_open_ = 0;
  const std::shared_ptr<std::atomic<int>> pinned_ = std::make_shared<std::atomic<int>>(0);
  const std::shared_ptr<FakeContext> context_;
  std::unique_ptr<FakeStream> compute_;
};

}  // namespace dlaunch::testing
