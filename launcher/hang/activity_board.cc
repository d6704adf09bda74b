#include "launcher/hang/activity_board.h"

#include <array>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr auto kAcquire = std::memory_order_acquire;
// A rank may have been killed while it wrote: then its last words are taken as they are.
constexpr int kMostReads = 1000;

std::optional<Deadline::Clock::time_point> time_of(std::int64_t nanoseconds) {
  if (nanoseconds == 0) return std::nullopt;
  return Deadline::Clock::time_point(std::chrono::nanoseconds(nanoseconds));
}

template <std::size_t kWords>
std::string text_of(const std::array<std::atomic<std::uint64_t>, kWords>& words) {
  std::array<std::uint64_t, kWords> values{};
  for (std::size_t i = 0; i < kWords; ++i) values[i] = words[i].load(kAcquire);
  const char* text = reinterpret_cast<const char*>(values.data());
  return {text, strnlen(text, sizeof values)};
}

ShownActivity read_fields(const ActivitySlot& slot) {
  ShownActivity shown{.kind = slot.kind.load(kAcquire),
                      .name = text_of(slot.name),
                      .operation = text_of(slot.operation),
                      .sequence = slot.sequence.load(kAcquire),
                      .tag = slot.tag.load(kAcquire),
                      .dtype = static_cast<DType>(slot.dtype.load(kAcquire)),
                      .lane = slot.lane.load(kAcquire),
                      .count = slot.count.load(kAcquire),
                      .bytes = slot.bytes.load(kAcquire),
                      .peer = slot.peer.load(kAcquire),
                      .members = slot.members.load(kAcquire),
                      .since = time_of(slot.since.load(kAcquire))};
  // An operation that ended leaves its kind and its time behind for a moment.
  if (!shown.waits()) shown.since.reset();
  return shown;
}

ShownActivity read_slot(const ActivitySlot& slot) {
  ShownActivity shown;
  for (int i = 0; i < kMostReads; ++i) {
    const std::uint32_t before = slot.version.load(kAcquire);
    shown = read_fields(slot);
    if (before % 2 == 0 && slot.version.load(std::memory_order_relaxed) == before) break;
  }
  return shown;
}

}  // namespace

ActivityBoard::ActivityBoard(int ranks)
    : ranks_(ranks), file_(memfd_create("dlaunch-activity", MFD_CLOEXEC)) {
  const std::size_t bytes = static_cast<std::size_t>(ranks) * sizeof(ActivityPage);
  if (!file_.is_open() || ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (memory == MAP_FAILED) return;
  pages_ = static_cast<ActivityPage*>(memory);
  for (int rank = 0; rank < ranks; ++rank) pages_[rank].magic.store(ActivityPage::kMagic);
}

ActivityBoard::~ActivityBoard() {
  if (pages_ != nullptr) munmap(pages_, static_cast<std::size_t>(ranks_) * sizeof(ActivityPage));
}

void ActivityBoard::tell_of_failure() {
  if (pages_ == nullptr) return;
  for (int rank = 0; rank < ranks_; ++rank) pages_[rank].job_failed.store(1);
}

std::string ActivityBoard::path() const {
  if (pages_ == nullptr) return "";
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file_.get());
}

ShownRank ActivityBoard::read(int local_rank) const {
  if (pages_ == nullptr) return {};
  const ActivityPage& page = pages_[local_rank];
  ShownRank rank{.process = static_cast<pid_t>(page.process.load(kAcquire)),
                 .joins_world = page.joins_world.load(kAcquire) != 0,
                 .ready = time_of(page.ready.load(kAcquire)),
                 .stack_signal = page.stack_signal.load(kAcquire)};
  if (rank.process == 0) return rank;
  for (const ActivitySlot& slot : page.slots) {
    if (slot.used.load(kAcquire) == 0) continue;
    rank.progress += slot.version.load(kAcquire);
    rank.activities.push_back(read_slot(slot));
  }
  return rank;
}

}  // namespace dlaunch
