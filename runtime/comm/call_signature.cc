#include "runtime/comm/call_signature.h"

#include <algorithm>

#include "runtime/collective/signature.h"

namespace dlaunch {
namespace {

// In place of a hash of counts that differ from rank to rank.
constexpr std::uint32_t kUnequalParts = 1;

// Unequal parts; equal ones are the same operation whether they were written out or not.
std::span<const std::size_t> unequal_counts(const CollectiveCall& call) {
  const bool equal = std::ranges::all_of(
      call.counts, [&](std::size_t count) { return count == call.counts.front(); });
  return equal ? std::span<const std::size_t>() : call.counts;
}

std::uint32_t hash_lengths(std::span<const Buffer> pieces) {
  std::uint32_t hash = 0;
  for (const Buffer& piece : pieces) {
    const std::size_t pair[] = {hash, piece.count};
    hash = hash_counts(pair);
  }
  return hash;
}

// The half of MessageSignature::extra that is not the history.
std::uint32_t details(const CollectiveCall& call) {
  if (call.of_split) return kSplitDetails;
  if (!call.pieces.empty()) return hash_lengths(call.pieces);
  if (call.record != nullptr) return record_details(call.record->bytes, unequal_counts(call));
  if (call.counts.empty()) return 0;
  return call.kind == CollectiveKind::kAllToAll ? kUnequalParts : hash_counts(unequal_counts(call));
}

// Elements of one rank's part where parts are equal.
std::size_t part_count(const CollectiveCall& call) {
  const bool output =
      call.kind == CollectiveKind::kScatter || call.kind == CollectiveKind::kReduceScatter;
  return output ? call.output.count : call.input.count;
}

bool has_parts(CollectiveKind kind) {
  return kind == CollectiveKind::kScatter || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
}

}  // namespace

std::string describe_numbered(const MessageSignature& call, std::uint64_t sequence) {
  std::string text = describe_call(call);
  return text.insert(std::min(text.find(' '), text.size()), " #" + std::to_string(sequence));
}

std::string describe_message(const MessageEnd& message) {
  const std::string call = describe_call(message.signature);
  std::string text = message.outgoing ? "send" : "recv";
  text += call.substr(std::min(call.find(' '), call.size()));
  text += message.outgoing ? " to " : " from ";
  text += message.peer == kAnyRank ? "any rank" : "rank " + std::to_string(message.peer);
  if (message.tag != 0) text += " tag " + std::to_string(message.tag);
  return text;
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kReduce || kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAllReduce;
}

ReduceOp op_of_call(const CollectiveCall& call) {
  return call.record == nullptr ? call.op : ReduceOp::kSum;
}

DType dtype_of_call(const CollectiveCall& call) {
  if (!call.pieces.empty()) return call.pieces.front().dtype;
  switch (call.kind) {
    case CollectiveKind::kBarrier:
      return DType::kU8;
    case CollectiveKind::kGather:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduce:
      return call.input.dtype;
    default:
      return call.output.dtype;
  }
}

std::size_t element_bytes(const CollectiveCall& call) {
  return call.record != nullptr ? call.record->bytes : size_of(dtype_of_call(call));
}

std::size_t total_count(const CollectiveCall& call, int size) {
  std::size_t total = 0;
  if (call.kind == CollectiveKind::kBarrier) return 0;
  if (!call.pieces.empty()) {
    for (const Buffer& piece : call.pieces) total += piece.count;
    return total;
  }
  if (has_parts(call.kind) && !call.counts.empty()) {
    for (const std::size_t count : call.counts) total += count;
    return total;
  }
  if (call.kind == CollectiveKind::kAllToAll && !call.counts.empty()) return 0;
  total = call.kind == CollectiveKind::kBroadcast ? call.output.count : part_count(call);
  if (has_parts(call.kind)) total *= static_cast<std::size_t>(size);
  return call.record == nullptr ? total : total / call.record->bytes;
}

MessageSignature signature_of(const CollectiveCall& call, int size, std::uint32_t history) {
  MessageSignature signature{.count = total_count(call, size),
                             .root = call.root,
                             .operation = static_cast<std::uint8_t>(call.kind),
                             .dtype = static_cast<std::uint8_t>(dtype_of_call(call)),
                             .algorithm = static_cast<std::uint8_t>(call.algorithm),
                             .extra = signature_extra(details(call), history)};
  if (reduces(call.kind)) {
    signature.reduce_op = reduction_code(call.op, call.record != nullptr, call.order);
  }
  return signature;
}

}  // namespace dlaunch
