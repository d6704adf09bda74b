// What NCCL is used for: pure functions of a call, with the same answer on all ranks.
#pragma once

#include <algorithm>
#include <cstddef>

#include "runtime/base/dtype.h"
#include "runtime/comm/call_signature.h"
#include "runtime/comm/collective_call.h"
#include "runtime/device/device.h"

namespace dlaunch {

/// Whether NCCL's reduction is what Communicator promises.
inline bool nccl_reduces(ReduceOp op, DType dtype, ReduceOrder order) {
  if (order == ReduceOrder::kRanks) return false;
  const bool extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
  const bool adds = op == ReduceOp::kSum || op == ReduceOp::kProd;
  if (dtype == DType::kF32 || dtype == DType::kF64) return adds || op == ReduceOp::kAvg;
  return !is_floating(dtype) && (adds || extreme);
}

/// Whether all ranks' parts are of the same size.
inline bool equal_parts(const CollectiveCall& call) {
  return std::ranges::all_of(call.counts,
                             [&](std::size_t count) { return count == call.counts.front(); });
}

/// Whether NCCL does a reduction by itself, an average but for the division.
inline bool nccl_reduces(const CollectiveCall& call) {
  return nccl_reduces(call.op, dtype_of_call(call), call.order) && equal_parts(call);
}

/// Whether a valid call, no barrier, can be done by NCCL, with our kernel for the reductions that
/// are not its own. The kernel takes the operands of all ranks at once.
inline bool nccl_serves(const CollectiveCall& call, std::size_t ranks) {
  if (call.record != nullptr) return false;
  return ranks <= kMostOperands || !reduces(call.kind) || nccl_reduces(call);
}

}  // namespace dlaunch
