// Ranks that disagree about an all_to_all, with threads as ranks.
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Rank 1 expects another number from rank 0 than rank 0 sends: only these two can know.
TEST(AllToAllMismatch, OfOnePairNamesBothCounts) {
  for (const std::size_t extra : {1U, 70'000U}) {  // the latter needs one message more
    run_threads_as_ranks(3, [&](Communicator& comm) {
      const std::size_t each = 65'536;  // a whole segment
      std::vector<std::size_t> sends(3, each);
      std::vector<std::size_t> recvs(3, each);
      if (comm.rank() == 1) recvs[0] += extra;
      std::vector<float> input(3 * each);
      std::vector<float> output(std::accumulate(recvs.begin(), recvs.end(), std::size_t{0}));
      Status status = comm.all_to_all(input, output, sends, recvs);
      if (status.ok()) status = comm.barrier();
      EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
      EXPECT_THAT(status.to_string(), AllOf(HasSubstr("rank 0 sent all_to_all f32[65536]"),
                                            HasSubstr("rank 1 expects all_to_all f32[" +
                                                      std::to_string(each + extra))));
    });
  }
}

// Whoever gives counts does not know whether all ranks' are equal.
TEST(AllToAllMismatch, OfEqualPartsWithSuchAsMayDifferIsFoundEvenIfTheyDoNot) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    const std::vector<std::size_t> counts(2, 3);
    const std::vector<float> input(6);
    std::vector<float> output(6);
    Status status = comm.rank() == 0 ? comm.all_to_all(input, output)
                                     : comm.all_to_all(input, output, counts, counts);
    if (status.ok()) status = comm.barrier();
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr(" unequal"));
  });
}

}  // namespace
}  // namespace dlaunch::testing
