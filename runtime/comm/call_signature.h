// What a valid call is to other ranks: its type, its signature, and its name in error messages.
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/dtype.h"
#include "runtime/comm/collective_call.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// sum, min, ... of all ranks' inputs.
bool reduces(CollectiveKind kind);

/// The type of the elements that the call moves; u8 for a barrier.
DType dtype_of_call(const CollectiveCall& call);

/// The built-in reduction; for records, which one of the caller's own combines, sum: it takes u8 as
/// they are. Without a meaning for calls that reduce nothing.
ReduceOp op_of_call(const CollectiveCall& call);

/// Bytes of an element, or of a record.
std::size_t element_bytes(const CollectiveCall& call);

/// Elements (or records) of the whole operation, the same number on every rank; 0 for an all_to_all
/// with unequal parts, of which each rank knows only its own.
std::size_t total_count(const CollectiveCall& call, int size);

/// `call.algorithm` is the one that is used; `history` of the calls before this one.
MessageSignature signature_of(const CollectiveCall& call, int size, std::uint32_t history);

/// "all_reduce #12 sum f32[1000] ring".
std::string describe_numbered(const MessageSignature& call, std::uint64_t sequence);

/// One end of a point-to-point message. Ranks send it to each other as it is.
struct MessageEnd {
  MessageSignature signature;
  std::uint64_t tag = 0;
  std::int32_t peer = kAnyRank;
  bool outgoing = false;
};

/// "recv f32[10] from rank 3 tag 7", "recv f32[10] from any rank".
std::string describe_message(const MessageEnd& message);

}  // namespace dlaunch
