// HostGroup: the ranks of one host that share a segment, as one of them holds it; and LaneMemory,
// the part of it that belongs to one lane.
//
// A segment is a memfd: it has no name, and it is gone when the last process that maps it is,
// however that ends. Besides the memory a group has a doorbell (eventfd) per member and lane, and a
// pidfd of every other member, which tells of its death.
//
// Made by the bootstrap (shm/bootstrap.h), then constant but for what lies in the memory; shared by
// the endpoints of all lanes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"
#include "transport/shm/mapping.h"
#include "transport/shm/segment_layout.h"
#include "transport/shm/segment_records.h"
#include "transport/shm/shared_group.h"

namespace dlaunch {

/// A descriptor that tells of a process's end (pidfd). Not open, with errno set, if there is none.
Descriptor open_process(pid_t pid);

struct HostGroup {
  struct Member {
    int rank = 0;
    int slot = 0;  // its place in the segment, which also has places for those that did not join
    pid_t pid = 0;
    Descriptor pidfd;  // not of this rank itself
  };

  SegmentLayout layout;
  Descriptor file;  // the segment's, while others may still join; only the leader has it
  Mapping memory;
  std::vector<Descriptor> doorbells;  // by lane, then slot
  std::vector<Member> members;        // ascending by rank
  int own = 0;                        // which of the members this rank is
  bool members_readable = false;
  bool core_each = false;  // as all members agree

  template <typename T>
  T& at(std::size_t offset) const {
    return *reinterpret_cast<T*>(memory.data() + offset);
  }
  SegmentHeader& header() const { return at<SegmentHeader>(0); }
  MemberRecord& record(int slot) const { return at<MemberRecord>(layout.record(slot)); }

  /// Fills in pids and pidfds once everybody has joined. kUnavailable if one of them cannot be
  /// watched.
  Status watch_members();
};

/// What an endpoint sees of its group. Doorbells from any thread, the rest from the endpoint's.
class LaneMemory final : public Doorbells {
 public:
  LaneMemory(std::shared_ptr<const HostGroup> group, int lane);

  const HostGroup& group() const { return *group_; }
  /// Where this rank is rung.
  int own_doorbell() const { return doorbell(group_->own); }
  void ring(int member) override;

  /// The group as collectives see it. This object outlives it.
  SharedGroup make_shared_group();
  RingMemory ring_to(int member) const { return ring(group_->own, member); }
  RingMemory ring_from(int member) const { return ring(member, group_->own); }

  /// Changes whenever a member leaves or fails.
  std::uint64_t events() const { return control_.events.load(std::memory_order_seq_cst); }
  std::uint32_t state(int member) const;
  /// Why a member that is kFailed has failed. kProtocol if it has written nonsense.
  Result<FailureNotice> notice(int member, int world_size) const;
  /// Makes this rank's end known to all; those that sleep are to be woken then.
  void announce_left() { announce(MemberState::kLeft); }
  void announce_failure(const FailureNotice& notice);
  /// As if the process had died: for tests.
  void announce_vanished() { announce(MemberState::kVanished); }

 private:
  int slot(int member) const { return group_->members[static_cast<std::size_t>(member)].slot; }
  int doorbell(int member) const;
  MemberState& state_of(int member) const;
  RingMemory ring(int from, int to) const;
  void announce(std::uint32_t state);

  std::shared_ptr<const HostGroup> group_;
  int lane_;
  LaneControl& control_;
};

}  // namespace dlaunch
