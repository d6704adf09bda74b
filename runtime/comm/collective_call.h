// CollectiveCall: a collective as plain data, as decorators (counting, timing) and backends see it.
// The typed members of Communicator (communicator.h) are the usual way to make one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/collective/record_reduction.h"
#include "runtime/collective/types.h"
#include "runtime/comm/buffer.h"

namespace dlaunch {

/// Which lane an asynchronous call takes: those of kHigh never queue behind the others.
enum class Priority : std::uint8_t { kNormal = 0, kHigh = 1 };

// Initialisers even where they change nothing, so that no compiler warns users who leave one out.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ConstBuffer input = {};  // what this rank contributes; may be output's memory (in place)
  Buffer output = {};      // what it receives
  /// scatter, gather, all_gather, reduce_scatter with unequal parts: elements of every rank's part,
  /// on every rank the same. all_to_all: what this rank sends to each. Empty: equal parts.
  std::span<const std::size_t> counts = {};
  /// all_to_all with unequal parts: what this rank receives from each.
  std::span<const std::size_t> recv_counts = {};
  /// all_reduce of many buffers as one, in place; input and output are empty then.
  std::span<const Buffer> pieces = {};
  ReduceOp op = ReduceOp::kSum;
  /// A reduction of the caller's own instead of `op`, over records. Buffers are u8 then and hold
  /// whole records; `counts` are records.
  const RecordReduction* record = nullptr;
  int root = -1;  // -1: the operation has none
  Algorithm algorithm = Algorithm::kAuto;
  ReduceOrder order = ReduceOrder::kAny;
  Priority priority = Priority::kNormal;  // of start()
  bool of_split = false;  // an all_gather that split() makes: no other call matches it
};

}  // namespace dlaunch
