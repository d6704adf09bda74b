// The vocabulary of collectives: which operation, which reduction, which algorithm.
#pragma once

#include <cstdint>
#include <string_view>

namespace dlaunch {

/// The numbers are part of the wire format.
enum class ReduceOp : std::uint8_t { kSum = 0, kAvg = 1, kMin = 2, kMax = 3, kProd = 4 };

inline constexpr ReduceOp kAllReduceOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin,
                                             ReduceOp::kMax, ReduceOp::kProd};

/// How an all_reduce is done. The numbers are part of the wire format.
enum class Algorithm : std::uint8_t {
  kAuto = 0,       // chosen by bytes and ranks, see runtime/collective/selection.h
  kRing = 1,       // runtime/collective/ring.h
  kButterfly = 2,  // runtime/collective/butterfly.h
};

/// The numbers are part of the wire format.
enum class CollectiveKind : std::uint8_t {
  kBarrier = 1,
  kBroadcast = 2,
  kScatter = 3,
  kGather = 4,
  kAllGather = 5,
  kReduce = 6,
  kReduceScatter = 7,
  kAllReduce = 8,
};

inline constexpr CollectiveKind kAllCollectiveKinds[] = {
    CollectiveKind::kBarrier,       CollectiveKind::kBroadcast, CollectiveKind::kScatter,
    CollectiveKind::kGather,        CollectiveKind::kAllGather, CollectiveKind::kReduce,
    CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce};

/// "all_reduce", "broadcast", ...; "?" for a number that is no kind.
std::string_view to_string(CollectiveKind kind);
/// "sum", "avg", ...; "?" for a number that is no reduction.
std::string_view to_string(ReduceOp op);
/// "ring", "butterfly", "auto"; "?" for a number that is no algorithm.
std::string_view to_string(Algorithm algorithm);

}  // namespace dlaunch
