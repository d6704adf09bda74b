#include "transport/shm/segment.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace dlaunch {

Descriptor open_process(pid_t pid) {
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

Status HostGroup::watch_members() {
  for (std::size_t i = 0; i < members.size(); ++i) {
    Member& member = members[i];
    member.pid = record(member.slot).pid.load(std::memory_order_acquire);
    if (i == static_cast<std::size_t>(own)) continue;
    member.pidfd = open_process(member.pid);
    if (!member.pidfd.is_open()) {
      const int error = errno;
      Status why = Status::from_errno("pidfd_open", error);
      if (error == EMFILE || error == ENFILE) return why;  // nothing about that process
      return Status::about_peer(error == ESRCH ? StatusCode::kPeerLost : StatusCode::kUnavailable,
                                member.rank, "its process cannot be watched: " + why.to_string());
    }
  }
  return Status();
}

LaneMemory::LaneMemory(std::shared_ptr<const HostGroup> group, int lane)
    : group_(std::move(group)),
      lane_(lane),
      control_(group_->at<LaneControl>(group_->layout.control(lane))) {}

int LaneMemory::doorbell(int member) const {
  const std::size_t slots = static_cast<std::size_t>(group_->layout.members);
  const std::size_t index =
      static_cast<std::size_t>(lane_) * slots + static_cast<std::size_t>(slot(member));
  return group_->doorbells[index].get();
}

void LaneMemory::ring(int member) {
  const std::uint64_t one = 1;
  // Fails only where the counter is full: then it rings already.
  [[maybe_unused]] const ssize_t written = ::write(doorbell(member), &one, sizeof one);
}

SharedGroup LaneMemory::make_shared_group() {
  const SegmentLayout& layout = group_->layout;
  std::byte* const base = group_->memory.data();
  SharedGroup::Options options{.index = group_->own,
                               .memory = base + layout.group(lane_),
                               .heaps = base + layout.heaps_at,
                               .heap_bytes = layout.heap_bytes,
                               .members_readable = group_->members_readable,
                               .core_each = group_->core_each,
                               .doorbells = this};
  for (const HostGroup::Member& member : group_->members) {
    options.members.push_back({.rank = member.rank, .pid = member.pid});
  }
  return SharedGroup(std::move(options));
}

RingMemory LaneMemory::ring(int from, int to) const {
  const SegmentLayout& layout = group_->layout;
  return {group_->memory.data() + layout.ring_between(lane_, slot(from), slot(to)), layout.ring};
}

MemberState& LaneMemory::state_of(int member) const {
  return group_->at<MemberState>(group_->layout.state(lane_, slot(member)));
}

std::uint32_t LaneMemory::state(int member) const {
  return state_of(member).state.load(std::memory_order_acquire);
}

Result<FailureNotice> LaneMemory::notice(int member, int world_size) const {
  const MemberState& told = state_of(member);
  const std::size_t bytes = std::min<std::size_t>(told.text_bytes, kMaxNoticeText);
  return FailureNotice::from_peer(told.code, told.about, told.reporter, {told.text, bytes},
                                  world_size);
}

void LaneMemory::announce_failure(const FailureNotice& notice) {
  MemberState& own = state_of(group_->own);
  own.code = static_cast<std::uint32_t>(notice.code);
  own.about = notice.about;
  own.reporter = notice.reporter;
  own.text_bytes = static_cast<std::uint32_t>(std::min(notice.text.size(), kMaxNoticeText));
  std::memcpy(own.text, notice.text.data(), own.text_bytes);
  announce(MemberState::kFailed);
}

void LaneMemory::announce(std::uint32_t state) {
  state_of(group_->own).state.store(state, std::memory_order_release);
  control_.events.fetch_add(1, std::memory_order_seq_cst);
}

}  // namespace dlaunch
