#include "runtime/base/activity.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/crash_stack.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/stack_signal.h"

namespace dlaunch {
namespace {

constexpr auto kRelease = std::memory_order_release;

std::int64_t nanoseconds(Deadline::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

template <std::size_t kWords>
void store_text(std::array<std::atomic<std::uint64_t>, kWords>& words, std::string_view text) {
  std::array<std::uint64_t, kWords> padded{};
  std::memcpy(padded.data(), text.data(), std::min(text.size(), sizeof padded));
  for (std::size_t i = 0; i < kWords; ++i) words[i].store(padded[i], kRelease);
}

void store_collective(ActivitySlot& slot, std::string_view operation, std::uint64_t sequence) {
  store_text(slot.operation, operation);
  slot.sequence.store(sequence, kRelease);
}

// Makes the version odd while it lives.
class Writing {
 public:
  explicit Writing(ActivitySlot& slot)
      : slot_(slot), version_(slot.version.load(std::memory_order_relaxed)) {
    slot_.version.store(version_ + 1, std::memory_order_relaxed);
  }
  ~Writing() { slot_.version.store(version_ + 2, kRelease); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  ActivitySlot& slot_;
  const std::uint32_t version_;
};

}  // namespace

void ActivityReporter::begin(const Call& call) {
  if (slot_ == nullptr) return;
  const Writing writing(*slot_);
  if (call.kind == ActivityKind::kCollective) {
    store_collective(*slot_, call.operation, call.sequence);
  } else {
    slot_->tag.store(call.tag, kRelease);
    slot_->peer.store(call.peer, kRelease);
  }
  slot_->dtype.store(static_cast<std::uint8_t>(call.dtype), kRelease);
  slot_->count.store(call.count, kRelease);
  slot_->bytes.store(call.bytes, kRelease);
  slot_->since.store(0, kRelease);
  slot_->moved.store(0, kRelease);
  slot_->kind.store(call.kind, kRelease);
}

void ActivityReporter::set_last(std::string_view operation, std::uint64_t sequence) {
  if (slot_ == nullptr || slot_->sequence.load(std::memory_order_relaxed) == sequence) return;
  const Writing writing(*slot_);
  store_collective(*slot_, operation, sequence);
}

void ActivityReporter::begin_store_wait(std::string_view missing,
                                        Deadline::Clock::time_point since) {
  if (slot_ == nullptr) return;
  {
    const Writing writing(*slot_);
    store_text(slot_->name, missing);
    slot_->kind.store(ActivityKind::kStoreWait, kRelease);
  }
  waits(since, Deadline::Clock::now());
}

void ActivityReporter::waits(Deadline::Clock::time_point since, Deadline::Clock::time_point moved) {
  if (slot_ == nullptr) return;
  const Writing writing(*slot_);
  slot_->since.store(nanoseconds(since), kRelease);
  slot_->moved.store(nanoseconds(moved), kRelease);
}

void ActivityReporter::release() {
  if (slot_ == nullptr) return;
  end();
  slot_->used.store(0, kRelease);
  slot_ = nullptr;
}

std::shared_ptr<Activity> Activity::open(const std::string& path, int local_rank) {
  if (path.empty()) return nullptr;
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat status {};
  if (!file.is_open() || fstat(file.get(), &status) != 0) return nullptr;
  const auto bytes = static_cast<std::size_t>(status.st_size);
  const std::size_t offset = static_cast<std::size_t>(local_rank) * sizeof(ActivityPage);
  if (local_rank < 0 || bytes < offset + sizeof(ActivityPage)) return nullptr;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return nullptr;
  auto& page = *reinterpret_cast<ActivityPage*>(static_cast<std::byte*>(memory) + offset);
  std::shared_ptr<Activity> activity(new Activity(memory, bytes, page));
  if (page.magic.load() != ActivityPage::kMagic) return nullptr;
  page.process.store(getpid());
  page.stack_signal.store(print_stack_on_signal());
  print_stack_on_crash();
  return activity;
}

Activity::~Activity() {
  munmap(memory_, bytes_);
}

void Activity::set_joins_world() {
  page_.joins_world.store(1);
}

void Activity::set_ready() {
  page_.ready.store(nanoseconds(Deadline::Clock::now()));
}

ActivityReporter Activity::reporter(std::string_view name, int lane, int members) {
  for (ActivitySlot& slot : page_.slots) {
    if (slot.used.exchange(1) != 0) continue;
    const Writing writing(slot);
    store_text(slot.name, name);
    store_text(slot.operation, "");
    slot.lane.store(static_cast<std::uint8_t>(lane), kRelease);
    slot.members.store(members, kRelease);
    slot.sequence.store(0, kRelease);
    slot.kind.store(ActivityKind::kNone, kRelease);
    return {shared_from_this(), &slot};
  }
  return {};
}

}  // namespace dlaunch
