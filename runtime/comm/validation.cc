#include "runtime/comm/validation.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/collective/algorithms.h"
#include "runtime/collective/signature.h"
#include "runtime/collective/types.h"
#include "runtime/comm/call_signature.h"
#include "transport/endpoint.h"

namespace dlaunch {
namespace {

// No memory of a process is larger, and byte counts below it cannot overflow where they are added
// up over ranks, or elements computed with in a wider type.
constexpr std::size_t kMostBytes = std::size_t{1} << 48;

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

// Of a buffer whose elements the call computes with. Others are copied as bytes, from any address.
Status check_operand(CollectiveKind kind, std::string_view name, const ConstBuffer& buffer) {
  DLAUNCH_RETURN_IF_ERROR(check_buffer(name, buffer));
  const std::size_t alignment = size_of(buffer.dtype);  // a power of two
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.data);
  if (!reduces(kind) || buffer.count == 0 || (address & (alignment - 1)) == 0) return Status();
  return invalid(std::string(name) + " is not aligned to its type: the address of " +
                 std::string(to_string(buffer.dtype)) + " elements is no multiple of " +
                 std::to_string(alignment));
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

Status check_counts(std::string_view name, std::span<const std::size_t> counts, int size) {
  if (counts.empty()) return Status();
  if (counts.size() != static_cast<std::size_t>(size)) {
    return invalid(std::to_string(counts.size()) + " " + std::string(name) + " for " +
                   std::to_string(size) + " ranks");
  }
  std::size_t total = 0;
  for (const std::size_t count : counts) {
    if (count > kMostBytes / 8 - total) return invalid("the counts add up to an impossible total");
    total += count;
  }
  return Status();
}

Status check_parts(const CollectiveCall& call, int rank, int size) {
  DLAUNCH_RETURN_IF_ERROR(check_counts("counts", call.counts, size));
  const PartAndWhole buffers = part_and_whole(call, rank);
  DLAUNCH_RETURN_IF_ERROR(check_operand(call.kind, buffers.part_name, buffers.part));
  const auto own = static_cast<std::size_t>(rank);
  if (!call.counts.empty() && buffers.part.count != call.counts[own]) {
    return invalid(std::string(buffers.part_name) + " has " + std::to_string(buffers.part.count) +
                   " elements, but counts says " + std::to_string(call.counts[own]));
  }
  if (buffers.part.count > kMostBytes / 8 / static_cast<std::size_t>(size)) {
    return invalid("an impossible count of " + std::to_string(buffers.part.count) + " per rank");
  }
  if (!buffers.whole_used) return Status();
  DLAUNCH_RETURN_IF_ERROR(check_operand(call.kind, buffers.whole_name, buffers.whole));
  if (buffers.part.dtype != buffers.whole.dtype) return invalid("input and output differ in type");
  const std::size_t total = total_count(call, size);
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
  DLAUNCH_RETURN_IF_ERROR(check_operand(call.kind, "input", call.input));
  if (call.kind == CollectiveKind::kReduce && rank != call.root) return Status();
  DLAUNCH_RETURN_IF_ERROR(check_operand(call.kind, "output", call.output));
  if (call.input.dtype != call.output.dtype) return invalid("input and output differ in type");
  if (call.input.count != call.output.count) return invalid("input and output differ in count");
  if (overlap(call.input, call.output) && call.input.data != call.output.data) {
    return invalid("input and output overlap, but not in place");
  }
  return Status();
}

// Of an all_to_all with such parts as may differ.
Status check_unequal_parts(const CollectiveCall& call, std::size_t own) {
  if (call.algorithm == Algorithm::kBruck) return invalid("bruck takes equal parts only");
  const auto check_total = [](std::string_view name, std::size_t count,
                              std::span<const std::size_t> counts) {
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    if (total == count) return Status();
    return invalid(std::string(name) + " has " + std::to_string(count) +
                   " elements, but its counts add up to " + std::to_string(total));
  };
  DLAUNCH_RETURN_IF_ERROR(check_total("input", call.input.count, call.counts));
  DLAUNCH_RETURN_IF_ERROR(check_total("output", call.output.count, call.recv_counts));
  // Others' are compared when they meet; this is the only part that is not sent.
  if (call.counts[own] == call.recv_counts[own]) return Status();
  return invalid("this rank sends itself " + std::to_string(call.counts[own]) +
                 " elements, but receives " + std::to_string(call.recv_counts[own]) +
                 " from itself");
}

Status check_all_to_all(const CollectiveCall& call, int rank, int size) {
  if (call.counts.empty() != call.recv_counts.empty()) {
    return invalid("send counts and receive counts go together");
  }
  DLAUNCH_RETURN_IF_ERROR(check_counts("send counts", call.counts, size));
  DLAUNCH_RETURN_IF_ERROR(check_counts("receive counts", call.recv_counts, size));
  DLAUNCH_RETURN_IF_ERROR(check_buffer("input", call.input));
  DLAUNCH_RETURN_IF_ERROR(check_buffer("output", call.output));
  if (call.input.dtype != call.output.dtype) return invalid("input and output differ in type");
  if (overlap(call.input, call.output)) return invalid("input and output overlap");
  if (!call.counts.empty()) return check_unequal_parts(call, static_cast<std::size_t>(rank));
  if (call.input.count != call.output.count) return invalid("input and output differ in count");
  if (call.input.count % static_cast<std::size_t>(size) == 0) return Status();
  return invalid("input has " + std::to_string(call.input.count) +
                 " elements, which is no multiple of " + std::to_string(size) + " ranks");
}

// True if no two pieces overlap. Ascending ones, as gradients usually come, are checked as they
// are.
bool disjoint(std::span<const Buffer> pieces) {
  const auto follows = [](const Buffer& before, const Buffer& after) {
    return reinterpret_cast<std::uintptr_t>(before.data) + before.bytes() <=
           reinterpret_cast<std::uintptr_t>(after.data);
  };
  const auto all_follow = [&](std::span<const Buffer> buffers) {
    return std::ranges::adjacent_find(buffers, std::not_fn(follows)) == buffers.end();
  };
  if (all_follow(pieces)) return true;
  std::vector<Buffer> sorted;
  std::ranges::copy_if(pieces, std::back_inserter(sorted),
                       [](const Buffer& piece) { return piece.count > 0; });
  std::ranges::sort(sorted, std::less<>(), &Buffer::data);
  return all_follow(sorted);
}

Status check_pieces(const CollectiveCall& call) {
  if (call.kind != CollectiveKind::kAllReduce) return invalid("only all_reduce takes pieces");
  if (call.record != nullptr) return invalid("records do not come in pieces");
  std::size_t total = 0;
  for (std::size_t i = 0; i < call.pieces.size(); ++i) {
    const Buffer& piece = call.pieces[i];
    const std::string name = "piece " + std::to_string(i);
    DLAUNCH_RETURN_IF_ERROR(check_operand(call.kind, name, piece));
    if (piece.dtype != call.pieces[0].dtype) return invalid(name + " differs in type");
    if (piece.count > kMostBytes / 8 - total) return invalid("an impossible total");
    total += piece.count;
  }
  return disjoint(call.pieces) ? Status() : invalid("two pieces overlap");
}

Status check_record(const CollectiveCall& call) {
  if (!reduces(call.kind)) return invalid("this operation does not reduce");
  if (call.record->combine == nullptr) return invalid("the reduction has no function");
  if (call.record->bytes == 0 || call.record->bytes > kMostRecordBytes) {
    return invalid("a record has between 1 and " + std::to_string(kMostRecordBytes) + " bytes");
  }
  for (const auto& [count, dtype] : {std::pair(call.input.count, call.input.dtype),
                                     std::pair(call.output.count, call.output.dtype)}) {
    if (dtype != DType::kU8) return invalid("buffers of records are bytes");
    if (count % call.record->bytes != 0) return invalid("the buffers do not hold whole records");
  }
  return Status();
}

// With counts in bytes the other checks hold for records too.
Status check_record_parts(const CollectiveCall& call, int rank, int size) {
  DLAUNCH_RETURN_IF_ERROR(check_counts("counts", call.counts, size));
  std::vector<std::size_t> bytes(call.counts.begin(), call.counts.end());
  for (std::size_t& count : bytes) {
    if (count > kMostBytes / 8 / call.record->bytes) return invalid("an impossible count");
    count *= call.record->bytes;
  }
  CollectiveCall in_bytes = call;
  in_bytes.counts = bytes;
  in_bytes.record = nullptr;
  return check_parts(in_bytes, rank, size);
}

Status check_reduction(const CollectiveCall& call) {
  if (to_string(call.op) == "?") return invalid("there is no such reduction");
  const DType dtype = dtype_of_call(call);
  if (!reduces(call.kind) || call.record != nullptr || has_reduction(dtype, call.op))
    return Status();
  return invalid(std::string(to_string(call.op)) + " is of integers, not of " +
                 std::string(to_string(dtype)));
}

Status check_names(const CollectiveCall& call) {
  if (to_string(call.kind) == "?") return invalid("there is no such collective");
  DLAUNCH_RETURN_IF_ERROR(check_reduction(call));
  if (to_string(call.algorithm) == "?") return invalid("there is no such algorithm");
  if (call.order != ReduceOrder::kAny && call.order != ReduceOrder::kRanks) {
    return invalid("there is no such order of operands");
  }
  if (call.algorithm == Algorithm::kAuto || has_algorithm(call.kind, call.algorithm)) {
    return Status();
  }
  std::string names;
  for (const Algorithm algorithm : algorithms_of(call.kind)) {
    names += (names.empty() ? "" : ", ") + std::string(to_string(algorithm));
  }
  return invalid("it is not done by " + std::string(to_string(call.algorithm)) +
                 (names.empty() ? "" : ", but by " + names));
}

Status check(const CollectiveCall& call, int rank, int size) {
  DLAUNCH_RETURN_IF_ERROR(check_names(call));
  if (!rooted(call.kind) && call.root != -1) return invalid("this operation has no root");
  if (rooted(call.kind) && (call.root < 0 || call.root >= size)) {
    return invalid("root " + std::to_string(call.root) + " is not in a world of " +
                   std::to_string(size));
  }
  if (call.kind == CollectiveKind::kBarrier) return Status();
  if (!call.pieces.empty()) return check_pieces(call);
  if (call.record != nullptr) DLAUNCH_RETURN_IF_ERROR(check_record(call));
  if (call.kind == CollectiveKind::kAllToAll) return check_all_to_all(call, rank, size);
  if (!call.recv_counts.empty()) return invalid("only all_to_all takes receive counts");
  if (parted(call.kind)) {
    return call.record == nullptr ? check_parts(call, rank, size)
                                  : check_record_parts(call, rank, size);
  }
  if (!call.counts.empty()) return invalid("this operation takes no counts");
  return check_whole(call, rank);
}

}  // namespace

Status validate(const CollectiveCall& call, int rank, int size) {
  const Status status = check(call, rank, size);
  return status.ok() ? status : status.within(std::string(to_string(call.kind)));
}

namespace {

Status validate_message(ConstBuffer data, int peer, int size) {
  DLAUNCH_RETURN_IF_ERROR(check_buffer("data", data));
  if (data.bytes() > kMaxMessageBytes) {
    return invalid("a message of " + std::to_string(data.bytes()) +
                   " bytes: " + std::to_string(kMaxMessageBytes) + " are allowed");
  }
  if (peer < 0 || peer >= size) {
    return invalid("peer " + std::to_string(peer) + " is not in a world of " +
                   std::to_string(size));
  }
  return Status();
}

}  // namespace

Status validate_send(ConstBuffer data, int peer, int size) {
  return validate_message(data, peer, size).within("send");
}

Status validate_recv(Buffer data, int peer, int size) {
  return validate_message(data, peer == kAnyRank ? 0 : peer, size).within("recv");
}

}  // namespace dlaunch
