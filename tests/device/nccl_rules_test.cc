// What NCCL is used for: pure functions, in any build.
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/cuda/nccl_rules.h"

namespace dlaunch {
namespace {

/// A call on one vector of `count` elements at each rank.
CollectiveCall call_of(CollectiveKind kind, DType dtype, ReduceOp op = ReduceOp::kSum) {
  static std::array<double, 16> memory{};
  return {.kind = kind,
          .input = {memory.data(), 8, dtype},
          .output = {memory.data(), 8, dtype},
          .op = op};
}

TEST(NcclRules, SumsOfFloatsAreItsOwnOnAnyNumberOfRanks) {
  for (const std::size_t ranks : {2UL, kMostOperands, kMostOperands + 1, 1000UL}) {
    for (const auto kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kReduce, CollectiveKind::kReduceScatter}) {
      EXPECT_TRUE(nccl_serves(call_of(kind, DType::kF32), ranks));
      EXPECT_TRUE(nccl_serves(call_of(kind, DType::kF64, ReduceOp::kAvg), ranks));
      EXPECT_TRUE(nccl_serves(call_of(kind, DType::kI64, ReduceOp::kMax), ranks));
    }
    for (const auto kind : {CollectiveKind::kBroadcast, CollectiveKind::kAllGather,
                            CollectiveKind::kScatter, CollectiveKind::kAllToAll}) {
      EXPECT_TRUE(nccl_serves(call_of(kind, DType::kBF16), ranks));
    }
  }
}

TEST(NcclRules, WhatOurKernelReducesEndsWithItsOperands) {
  CollectiveCall ordered = call_of(CollectiveKind::kAllReduce, DType::kF32);
  ordered.order = ReduceOrder::kRanks;
  const std::array<std::size_t, 2> unequal{3, 5};
  CollectiveCall parts = call_of(CollectiveKind::kReduceScatter, DType::kF32);
  parts.counts = unequal;
  for (const CollectiveCall& call :
       {call_of(CollectiveKind::kAllReduce, DType::kBF16),
        call_of(CollectiveKind::kReduce, DType::kF16),
        call_of(CollectiveKind::kAllReduce, DType::kF32, ReduceOp::kMax),
        call_of(CollectiveKind::kReduceScatter, DType::kI32, ReduceOp::kAvg), ordered, parts}) {
    EXPECT_FALSE(nccl_reduces(call));
    EXPECT_TRUE(nccl_serves(call, kMostOperands));
    EXPECT_FALSE(nccl_serves(call, kMostOperands + 1));
  }
}

TEST(NcclRules, PartsOfOneSizeCountAsNone) {
  const std::vector<std::size_t> equal(70, 8);
  CollectiveCall call = call_of(CollectiveKind::kReduceScatter, DType::kF32);
  call.counts = equal;
  EXPECT_TRUE(equal_parts(call));
  EXPECT_TRUE(nccl_reduces(call));
  EXPECT_TRUE(nccl_serves(call, equal.size()));
}

TEST(NcclRules, PiecesAreReducedAsTheirTypeIs) {
  std::array<float, 4> memory{};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<Buffer> pieces{{memory.data(), 1, dtype}, {memory.data() + 2, 1, dtype}};
    const CollectiveCall call{.kind = CollectiveKind::kAllReduce, .pieces = pieces};
    EXPECT_EQ(nccl_reduces(call), dtype == DType::kF32);
  }
}

TEST(NcclRules, RecordsGoThroughTheHost) {
  const RecordReduction record{};
  CollectiveCall call = call_of(CollectiveKind::kAllReduce, DType::kU8);
  call.record = &record;
  EXPECT_FALSE(nccl_serves(call, 2));
}

}  // namespace
}  // namespace dlaunch
