// What ranks tell each other of their calls, so that they find out where these differ.
#include "runtime/collective/signature.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dlaunch {
namespace {

MessageSignature reduce() {
  return {.count = 6,
          .root = 1,
          .operation = static_cast<std::uint8_t>(CollectiveKind::kReduce),
          .dtype = 1,
          .reduce_op = 1,
          .algorithm = 2,
          .extra = 3};
}

std::uint32_t history_of(const std::vector<MessageSignature>& calls) {
  CallHistory history;
  for (const MessageSignature& call : calls) history.append(call);
  return history.hash();
}

TEST(CallHistory, DependsOnAllThatIsToldOfACall) {
  std::vector<MessageSignature> calls(9, reduce());
  calls[1].count = 7;
  calls[2].root = 2;
  calls[3].operation = static_cast<std::uint8_t>(CollectiveKind::kGather);
  calls[4].dtype = 2;
  calls[5].reduce_op = 3;
  calls[6].algorithm = 3;
  calls[7].extra = 4;
  calls[8].reduce_op = 0;  // together they have the same bits
  calls[8].algorithm = 3;
  std::set<std::uint32_t> histories;
  for (const MessageSignature& call : calls) histories.insert(history_of({call}));
  EXPECT_EQ(histories.size(), calls.size());
}

TEST(CallHistory, DependsOnTheOrderOfCalls) {
  MessageSignature other = reduce();
  other.count = 7;
  EXPECT_NE(history_of({reduce(), other}), history_of({other, reduce()}));
  EXPECT_NE(history_of({reduce()}), history_of({reduce(), reduce()}));
}

TEST(RecordDetails, TellTheSizeOfARecordWhateverTheCounts) {
  for (const std::vector<std::size_t>& counts :
       {std::vector<std::size_t>{}, {1, 2, 3}, {4, 1, 1}, {0, 6, 0}}) {
    MessageSignature call{.count = 6,
                          .root = -1,
                          .operation = static_cast<std::uint8_t>(CollectiveKind::kReduceScatter),
                          .reduce_op = reduction_code(ReduceOp::kSum, true, ReduceOrder::kAny),
                          .extra = signature_extra(record_details(kMostRecordBytes, counts), 0)};
    EXPECT_THAT(describe_call(call),
                ::testing::StartsWith("reduce_scatter record(65535 bytes)[6]"));
    call.extra = signature_extra(record_details(1, counts), 0);
    EXPECT_THAT(describe_call(call), ::testing::StartsWith("reduce_scatter record(1 bytes)[6]"));
  }
}

}  // namespace
}  // namespace dlaunch
