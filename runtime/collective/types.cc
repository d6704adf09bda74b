#include "runtime/collective/types.h"

namespace dlaunch {

std::string_view to_string(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kScatter:
      return "scatter";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
  }
  return "?";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProd:
      return "prod";
    case ReduceOp::kBand:
      return "band";
    case ReduceOp::kBor:
      return "bor";
    case ReduceOp::kBxor:
      return "bxor";
  }
  return "?";
}

std::string_view to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kButterfly:
      return "butterfly";
    case Algorithm::kHalvingDoubling:
      return "halving_doubling";
    case Algorithm::kTree:
      return "tree";
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kOneShot:
      return "one_shot";
    case Algorithm::kBruck:
      return "bruck";
    case Algorithm::kHierarchical:
      return "hierarchical";
  }
  return "?";
}

std::optional<Algorithm> algorithm_from_name(std::string_view name) {
  if (name == to_string(Algorithm::kAuto)) return Algorithm::kAuto;
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (name == to_string(algorithm)) return algorithm;
  }
  return std::nullopt;
}

}  // namespace dlaunch
