#include "runtime/comm/validation.h"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace dlaunch {
namespace {

// No memory is larger, and sums of byte counts below it cannot overflow.
constexpr std::size_t kMostBytes = std::numeric_limits<std::size_t>::max() / 4;

Status invalid(std::string what) {
  return Status(StatusCode::kInvalidArgument, std::move(what));
}

Status check_buffer(std::string_view name, const ConstBuffer& buffer) {
  const auto text = std::string(name);
  if (size_of(buffer.dtype) == 0) return invalid(text + " has an unknown element type");
  if (buffer.count > kMostBytes / size_of(buffer.dtype)) {
    return invalid(text + " has an impossible count of " + std::to_string(buffer.count));
  }
  if (buffer.data == nullptr && buffer.count > 0) {
    return invalid(text + " is null but has " + std::to_string(buffer.count) + " elements");
  }
  return Status();
}

bool rooted(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kScatter ||
         kind == CollectiveKind::kGather || kind == CollectiveKind::kReduce;
}

bool parted(CollectiveKind kind) {
  return kind == CollectiveKind::kScatter || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
}

// The buffer that holds one part, and the one that holds all of them.
struct PartAndWhole {
  ConstBuffer part;
  ConstBuffer whole;
  std::string_view part_name;
  std::string_view whole_name;
  bool whole_used = true;
};

PartAndWhole part_and_whole(const CollectiveCall& call, int rank) {
  switch (call.kind) {
    case CollectiveKind::kScatter:
      return {call.output, call.input, "output", "input", rank == call.root};
    case CollectiveKind::kGather:
      return {call.input, call.output, "input", "output", rank == call.root};
    case CollectiveKind::kReduceScatter:
      return {call.output, call.input, "output", "input", true};
    default:
      return {call.input, call.output, "input", "output", true};
  }
}

bool overlap(const ConstBuffer& a, const ConstBuffer& b) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data);
  return a.count > 0 && b.count > 0 && a_begin < b_begin + b.bytes() &&
         b_begin < a_begin + a.bytes();
}

Status check_counts(const CollectiveCall& call, int size) {
  if (call.counts.empty()) return Status();
  if (call.counts.size() != static_cast<std::size_t>(size)) {
    return invalid(std::to_string(call.counts.size()) + " counts for " + std::to_string(size) +
                   " ranks");
  }
  std::size_t total = 0;
  for (const std::size_t count : call.counts) {
    if (count > kMostBytes / 8 - total) return invalid("the counts add up to an impossible total");
    total += count;
  }
  return Status();
}

Status check_parts(const CollectiveCall& call, int rank, int size) {
  DLAUNCH_RETURN_IF_ERROR(check_counts(call, size));
  const PartAndWhole buffers = part_and_whole(call, rank);
  DLAUNCH_RETURN_IF_ERROR(check_buffer(buffers.part_name, buffers.part));
  const auto own = static_cast<std::size_t>(rank);
  if (!call.counts.empty() && buffers.part.count != call.counts[own]) {
    return invalid(std::string(buffers.part_name) + " has " + std::to_string(buffers.part.count) +
                   " elements, but counts says " + std::to_string(call.counts[own]));
  }
  if (buffers.part.count > kMostBytes / 8 / static_cast<std::size_t>(size)) {
    return invalid("an impossible count of " + std::to_string(buffers.part.count) + " per rank");
  }
  if (!buffers.whole_used) return Status();
  DLAUNCH_RETURN_IF_ERROR(check_buffer(buffers.whole_name, buffers.whole));
  if (buffers.part.dtype != buffers.whole.dtype) return invalid("input and output differ in type");
  const std::size_t total = total_count(call, rank, size);
  if (buffers.whole.count != total) {
    return invalid(std::string(buffers.whole_name) + " has " + std::to_string(buffers.whole.count) +
                   " elements, but the parts add up to " + std::to_string(total));
  }
  // In place: the part lies where it belongs in the whole. A reduce_scatter may also leave its part
  // at the beginning of the input.
  std::size_t offset = own * buffers.part.count;
  if (!call.counts.empty()) {
    offset = 0;
    for (std::size_t part = 0; part < own; ++part) offset += call.counts[part];
  }
  const auto* whole = static_cast<const std::byte*>(buffers.whole.data);
  const bool in_place = buffers.part.data == whole + offset * size_of(buffers.whole.dtype) ||
                        (call.kind == CollectiveKind::kReduceScatter && buffers.part.data == whole);
  if (overlap(buffers.part, buffers.whole) && !in_place) {
    return invalid("input and output overlap, but not in place");
  }
  return Status();
}

Status check_whole(const CollectiveCall& call, int rank) {
  if (call.kind == CollectiveKind::kBroadcast) {
    DLAUNCH_RETURN_IF_ERROR(check_buffer("data", call.output));
    return call.input.data == call.output.data ? Status() : invalid("a broadcast works in place");
  }
  DLAUNCH_RETURN_IF_ERROR(check_buffer("input", call.input));
  if (call.kind == CollectiveKind::kReduce && rank != call.root) return Status();
  DLAUNCH_RETURN_IF_ERROR(check_buffer("output", call.output));
  if (call.input.dtype != call.output.dtype) return invalid("input and output differ in type");
  if (call.input.count != call.output.count) return invalid("input and output differ in count");
  if (overlap(call.input, call.output) && call.input.data != call.output.data) {
    return invalid("input and output overlap, but not in place");
  }
  return Status();
}

Status check(const CollectiveCall& call, int rank, int size) {
  if (to_string(call.kind) == "?") return invalid("there is no such collective");
  if (to_string(call.op) == "?") return invalid("there is no such reduction");
  if (to_string(call.algorithm) == "?") return invalid("there is no such algorithm");
  if (call.kind == CollectiveKind::kAllToAll || call.algorithm > Algorithm::kButterfly) {
    return invalid("this build does not have it");
  }
  if (call.algorithm != Algorithm::kAuto && call.kind != CollectiveKind::kAllReduce) {
    return invalid("only all_reduce has a choice of algorithms");
  }
  if (!rooted(call.kind) && call.root != -1) return invalid("this operation has no root");
  if (rooted(call.kind) && (call.root < 0 || call.root >= size)) {
    return invalid("root " + std::to_string(call.root) + " is not in a world of " +
                   std::to_string(size));
  }
  if (call.kind == CollectiveKind::kBarrier) return Status();
  if (parted(call.kind)) return check_parts(call, rank, size);
  if (!call.counts.empty()) return invalid("this operation takes no counts");
  return check_whole(call, rank);
}

}  // namespace

Status validate(const CollectiveCall& call, int rank, int size) {
  const Status status = check(call, rank, size);
  return status.ok() ? status : status.within(std::string(to_string(call.kind)));
}

Status validate_message(ConstBuffer data, int peer, int size) {
  DLAUNCH_RETURN_IF_ERROR(check_buffer("data", data));
  if (peer < 0 || peer >= size) {
    return invalid("peer " + std::to_string(peer) + " is not in a world of " +
                   std::to_string(size));
  }
  return Status();
}

std::size_t total_count(const CollectiveCall& call, int rank, int size) {
  if (call.kind == CollectiveKind::kBarrier) return 0;
  if (call.kind == CollectiveKind::kBroadcast) return call.output.count;
  if (!parted(call.kind)) return call.input.count;
  std::size_t total = 0;
  for (const std::size_t count : call.counts) total += count;
  if (!call.counts.empty()) return total;
  return part_and_whole(call, rank).part.count * static_cast<std::size_t>(size);
}

}  // namespace dlaunch
