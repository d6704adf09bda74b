// The vocabulary of collectives: which operation, which reduction, which algorithm.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/base/dtype.h"

namespace dlaunch {

/// The numbers are part of the wire format.
enum class ReduceOp : std::uint8_t {
  kSum = 0,
  kAvg = 1,
  kMin = 2,
  kMax = 3,
  kProd = 4,
  kBand = 5,  // bitwise and, or, exclusive or: of integers
  kBor = 6,
  kBxor = 7
};

inline constexpr ReduceOp kAllReduceOps[] = {ReduceOp::kSum, ReduceOp::kAvg,  ReduceOp::kMin,
                                             ReduceOp::kMax, ReduceOp::kProd, ReduceOp::kBand,
                                             ReduceOp::kBor, ReduceOp::kBxor};

/// Those that there are of elements of a type.
constexpr std::span<const ReduceOp> reductions_of(DType dtype) {
  constexpr std::size_t kBitwise = 3;  // the last ones
  return std::span(kAllReduceOps)
      .first(std::size(kAllReduceOps) - (is_floating(dtype) ? kBitwise : 0));
}

/// Whether there is this one.
constexpr bool has_reduction(DType dtype, ReduceOp op) {
  return std::ranges::find(reductions_of(dtype), op) != reductions_of(dtype).end();
}

/// How a collective is done. The numbers are part of the wire format.
enum class Algorithm : std::uint8_t {
  kAuto = 0,             // chosen by bytes, ranks and hosts, see runtime/collective/selection.h
  kRing = 1,             // runtime/collective/ring.h
  kButterfly = 2,        // recursive doubling, runtime/collective/butterfly.h
  kHalvingDoubling = 3,  // recursive halving and doubling, runtime/collective/halving_doubling.h
  kTree = 4,             // binomial tree, runtime/collective/tree.h
  kDirect = 5,           // each rank reduces its own slice of everybody's buffer, direct.h
  kOneShot = 6,          // each rank reads everybody's whole buffer, direct.h
  kBruck = 7,            // all_gather and all_to_all in lg p steps, bruck.h
  kHierarchical = 8,     // inside hosts, then across, hierarchical.h
};

inline constexpr Algorithm kAllAlgorithms[] = {
    Algorithm::kRing,  Algorithm::kButterfly,   Algorithm::kHalvingDoubling,
    Algorithm::kTree,  Algorithm::kDirect,      Algorithm::kOneShot,
    Algorithm::kBruck, Algorithm::kHierarchical};

/// In which order the operands of a reduction are taken.
enum class ReduceOrder : std::uint8_t {
  kAny = 0,    // whichever suits the algorithm: always the same one for the same call and world
  kRanks = 1,  // ((x0 + x1) + x2) + ...: every algorithm and transport gives the same bits,
               // but for the sign and payload of a NaN
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
  kAllToAll = 9,
};

inline constexpr CollectiveKind kAllCollectiveKinds[] = {
    CollectiveKind::kBarrier,       CollectiveKind::kBroadcast, CollectiveKind::kScatter,
    CollectiveKind::kGather,        CollectiveKind::kAllGather, CollectiveKind::kReduce,
    CollectiveKind::kReduceScatter, CollectiveKind::kAllReduce, CollectiveKind::kAllToAll};

/// "all_reduce", "broadcast", ...; "?" for a number that is no kind.
std::string_view to_string(CollectiveKind kind);
/// "sum", "avg", ...; "?" for a number that is no reduction.
std::string_view to_string(ReduceOp op);
/// "ring", "halving_doubling", "auto"; "?" for a number that is no algorithm.
std::string_view to_string(Algorithm algorithm);
/// The inverse; nothing for a name that is none.
std::optional<Algorithm> algorithm_from_name(std::string_view name);

}  // namespace dlaunch
