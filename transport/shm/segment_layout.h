// SegmentLayout: where everything lies in the memory that the ranks of a host share.
//
//   header | a record per member | lanes | heaps
//
// A lane has a control line, a state per member, the memory of its SharedGroup, and a ring for each
// ordered pair of members. Heaps serve all lanes. The segment is sparse: what is not touched costs
// nothing, so it may be far larger than memory; and a ring is touched once something is sent
// through it. Rings shrink as members grow in number, since everybody may send to everybody.
//
// Pure; the same on every rank of one build.
#pragma once

#include <cstddef>

#include "transport/shm/ring.h"

namespace dlaunch {

/// Heaps are whole multiples of this.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct SegmentLayout {
  int members = 0;
  int lanes = 0;
  RingShape ring;
  std::size_t heap_bytes = 0;  // of each member

  std::size_t records_at = 0;
  std::size_t lanes_at = 0;
  std::size_t lane_bytes = 0;
  std::size_t heaps_at = 0;
  std::size_t total_bytes = 0;

  static SegmentLayout of(int members, int lanes, std::size_t heap_bytes);

  // Offsets in the segment.
  std::size_t record(int member) const;
  std::size_t control(int lane) const;
  std::size_t state(int lane, int member) const;
  std::size_t group(int lane) const;
  std::size_t ring_between(int lane, int from, int to) const;
};

/// The heap of each of `members` members: together as much as the machine has memory, in whole huge
/// pages.
std::size_t default_heap_bytes(int members);

}  // namespace dlaunch
