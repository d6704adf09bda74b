#include "transport/shm/segment_layout.h"

#include <unistd.h>

#include <algorithm>

#include "runtime/base/round_up.h"
#include "transport/shm/segment_records.h"
#include "transport/shm/shared_group.h"

namespace dlaunch {
namespace {

std::size_t count(int number) {
  return static_cast<std::size_t>(number);
}

RingShape shape_of_rings(int members) {
  if (members <= 8) return {.lines = 256, .bulk_bytes = 256U << 10};
  if (members <= 32) return {.lines = 128, .bulk_bytes = 64U << 10};
  return {.lines = 64, .bulk_bytes = 8U << 10};
}

// The parts of a lane, one after the other.
std::size_t states_at() {
  return round_up(sizeof(LaneControl), kPage);
}
std::size_t group_at(const SegmentLayout& layout) {
  return states_at() + round_up(count(layout.members) * sizeof(MemberState), kPage);
}
std::size_t rings_at(const SegmentLayout& layout) {
  return group_at(layout) + SharedGroup::memory_bytes(layout.members);
}
std::size_t ring_stride(const SegmentLayout& layout) {
  return round_up(layout.ring.memory_bytes(), kPage);
}

}  // namespace

SegmentLayout SegmentLayout::of(int members, int lanes, std::size_t heap_bytes) {
  SegmentLayout layout{.members = members,
                       .lanes = lanes,
                       .ring = shape_of_rings(members),
                       .heap_bytes = round_up(heap_bytes, kHugePage)};
  layout.records_at = round_up(sizeof(SegmentHeader), kPage);
  layout.lanes_at = layout.records_at + round_up(count(members) * sizeof(MemberRecord), kPage);
  layout.lane_bytes =
      round_up(rings_at(layout) + count(members) * count(members) * ring_stride(layout), kPage);
  layout.heaps_at = round_up(layout.lanes_at + count(lanes) * layout.lane_bytes, kHugePage);
  layout.total_bytes = layout.heaps_at + count(members) * layout.heap_bytes;
  return layout;
}

std::size_t SegmentLayout::record(int member) const {
  return records_at + count(member) * sizeof(MemberRecord);
}

std::size_t SegmentLayout::control(int lane) const {
  return lanes_at + count(lane) * lane_bytes;
}

std::size_t SegmentLayout::state(int lane, int member) const {
  return control(lane) + states_at() + count(member) * sizeof(MemberState);
}

std::size_t SegmentLayout::group(int lane) const {
  return control(lane) + group_at(*this);
}

std::size_t SegmentLayout::ring_between(int lane, int from, int to) const {
  return control(lane) + rings_at(*this) +
         (count(from) * count(members) + count(to)) * ring_stride(*this);
}

std::size_t default_heap_bytes(int members) {
  const auto memory = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return std::max(memory / count(members) / kHugePage, std::size_t{1}) * kHugePage;
}

}  // namespace dlaunch
