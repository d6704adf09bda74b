#include "tests/device/fake_device.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/deadline.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/round_up.h"
#include "tests/device/fake_stream.h"
#include "transport/shm/mapping.h"

namespace dlaunch::testing {
namespace {

// What a MemoryHandle holds.
struct SharedFile {
  pid_t process = 0;
  int descriptor = -1;
  std::size_t bytes = 0;
};

// Memory of another rank.
struct Opened {
  Descriptor file;
  Mapping memory;
};

}  // namespace

struct FakeDevice::Allocation {
  std::size_t bytes = 0;
  Descriptor file;
};

FakeDevice::FakeDevice(const FakeDeviceOptions& options)
    : options_(options),
      context_(std::make_shared<FakeContext>(options.passes_flags)),
      compute_(std::make_unique<FakeStream>(context_)) {}

FakeDevice::~FakeDevice() = default;

MemoryPlace FakeDevice::place_of(const void* memory) const {
  const std::scoped_lock lock(mutex_);
  const auto* const address = static_cast<const std::byte*>(memory);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return MemoryPlace::kHost;
  const auto& [begin, allocation] = *std::prev(after);
  return address < begin + allocation.bytes ? MemoryPlace::kThisDevice : MemoryPlace::kHost;
}

DeviceStream& FakeDevice::compute() {
  return *compute_;
}

Result<std::unique_ptr<DeviceStream>> FakeDevice::make_stream(bool /*high_priority*/) {
  return std::unique_ptr<DeviceStream>(std::make_unique<FakeStream>(context_));
}

Result<std::shared_ptr<void>> FakeDevice::allocate(std::size_t bytes) {
  const std::size_t size = round_up(std::max(bytes, std::size_t{1}), kPage);
  {
    const std::scoped_lock lock(mutex_);
    if (in_use_ + size > options_.memory) {
      return Status(StatusCode::kIo, "out of device memory: " + std::to_string(bytes) + " bytes");
    }
  }
  Descriptor file(::memfd_create("fake-device", MFD_CLOEXEC));
  if (!file.is_open() || ::ftruncate(file.get(), static_cast<off_t>(size)) != 0) {
    return Status::from_errno("memfd_create", errno);
  }
  auto mapping = Mapping::of_file(file.get(), size);
  if (!mapping.ok()) return mapping.status();
  auto kept = std::make_shared<Mapping>(*std::move(mapping));
  std::byte* const begin = kept->data();
  const std::scoped_lock lock(mutex_);
  in_use_ += size;
  allocations_.emplace(begin, Allocation{size, std::move(file)});
  return std::shared_ptr<void>(begin, [this, kept = std::move(kept), size](void* memory) {
    // As cudaFree does; a stream that waits for a rank that is gone must not keep a test for ever.
    for (int tries = 0; tries < 6 && !synchronise(); ++tries) {
    }
    const std::scoped_lock freeing(mutex_);
    const auto freed_one = allocations_.find(static_cast<std::byte*>(memory));
    if (::flock(freed_one->second.file.get(), LOCK_EX | LOCK_NB) != 0) ++freed_while_open_;
    allocations_.erase(freed_one);
    in_use_ -= size;
  });
}

Result<std::shared_ptr<void>> FakeDevice::allocate_pinned(std::size_t bytes) {
  auto memory = std::make_shared<std::vector<std::byte>>(std::max(bytes, std::size_t{1}));
  return std::shared_ptr<void>(memory, memory->data());
}

Result<std::shared_ptr<void>> FakeDevice::pin(std::span<std::byte> memory) {
  ++*pinned_;
  return std::shared_ptr<void>(memory.data(), [count = pinned_](void*) { --*count; });
}

Result<MemoryHandle> FakeDevice::share(void* memory) {
  const std::scoped_lock lock(mutex_);
  const auto found = allocations_.find(static_cast<std::byte*>(memory));
  if (found == allocations_.end()) {
    return Status(StatusCode::kInvalidArgument, "no allocation begins there");
  }
  const SharedFile shared{
      .process = ::getpid(), .descriptor = found->second.file.get(), .bytes = found->second.bytes};
  MemoryHandle handle;
  std::memcpy(handle.bytes.data(), &shared, sizeof shared);
  return handle;
}

// Whoever has it open holds a lock of the file.
Result<std::shared_ptr<void>> FakeDevice::open(const MemoryHandle& handle) {
  if (!options_.opens_memory) return Status(StatusCode::kIo, "a fake device that opens no memory");
  SharedFile shared;
  std::memcpy(&shared, handle.bytes.data(), sizeof shared);
  const std::string path =
      "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.descriptor);
  auto opened = std::make_shared<Opened>();
  opened->file = Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!opened->file.is_open() || ::flock(opened->file.get(), LOCK_SH | LOCK_NB) != 0) {
    return Status::from_errno("open " + path, errno);
  }
  auto mapping = Mapping::of_file(opened->file.get(), shared.bytes);
  if (!mapping.ok()) return mapping.status();
  opened->memory = *std::move(mapping);
  return std::shared_ptr<void>(opened, opened->memory.data());
}

Result<std::unique_ptr<DevicePath>> FakeDevice::connect_native(Communicator& host,
                                                               std::chrono::nanoseconds timeout) {
  if (options_.connect_native) return options_.connect_native(*this, host, timeout);
  return Status(StatusCode::kUnavailable, "a fake device has no library");
}

bool FakeDevice::synchronise() {
  const auto event = compute_->record_now();
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (true) {
    const Result<bool> done = event->done();
    if (!done.ok() || deadline.expired()) return false;
    if (*done) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
}

bool FakeDevice::synchronise_within_the_driver() {
  const auto event = compute_->record_now();
  const std::scoped_lock lock(context_->driver);
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  while (!*event->passed && !context_->broken && !deadline.expired())
    std::this_thread::sleep_for(std::chrono::microseconds(10));
  return *event->passed;
}

void FakeDevice::fail() {
  context_->broken = true;
}

void FakeDevice::begin_capture() {
  compute_->begin_capture();
}

std::shared_ptr<FakeRecording> FakeDevice::end_capture() {
  return compute_->end_capture();
}

void FakeDevice::replay(const FakeRecording& recording) {
  ++replays_;
  compute_->replay(recording);
}

}  // namespace dlaunch::testing
