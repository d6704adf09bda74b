// Collectives in shared memory whose members use their slots in different units: each reads where
// the owner has written.
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/collective/shared_execution.h"
#include "tests/transport/fabric.h"
#include "transport/mesh/mesh.h"

namespace dlaunch {
namespace {

constexpr int kMembers = 3;
constexpr std::size_t kCount = 15'013;

std::string call_in_words(const MessageSignature& /*signature*/) {
  return "an all_reduce";
}

SharedAssignment all_reduce(int member, Algorithm algorithm, std::size_t unit,
                            std::vector<std::int32_t>& data) {
  const SharedShape shape{.kind = CollectiveKind::kAllReduce,
                          .algorithm = algorithm,
                          .member = member,
                          .members = kMembers,
                          .element = sizeof(std::int32_t),
                          .slot = SharedGroup::slot_bytes(SharedGroup::Channel::kLong),
                          .parts = aligned_partition(kMembers, kCount, sizeof(std::int32_t))};
  auto* const memory = reinterpret_cast<std::byte*>(data.data());
  return {.channel = SharedGroup::Channel::kLong,
          .plan = std::make_shared<SharedPlan>(shared_plan(shape)),
          .input = memory,
          .input_count = kCount,
          .output = memory,
          .dtype = DType::kI32,
          .slot_unit = unit,
          .one_shot = algorithm == Algorithm::kOneShot,
          .exposes_result = algorithm != Algorithm::kOneShot};
}

class SlotUnits : public testing::TestWithParam<Algorithm> {};

TEST_P(SlotUnits, MayDifferFromMemberToMember) {
  std::mt19937 random(static_cast<unsigned>(fresh_seed()));
  const std::size_t units[kMembers] = {std::size_t{64} << 10, 0, std::size_t{256} << 10};
  Fabric fabric = make_mesh_fabric(
      kMembers, {.transport = TransportChoice::kSharedMemory, .hosts = 1, .wait = {}});
  SharedSequence sequences[kMembers];
  for (int turn = 0; turn < 6; ++turn) {
    std::vector<std::vector<std::int32_t>> data(kMembers, std::vector<std::int32_t>(kCount));
    std::vector<double> sums(kCount);
    for (auto& values : data) {
      for (std::size_t i = 0; i < kCount; ++i) {
        values[i] = static_cast<std::int32_t>(random() % 1'000'000);
        sums[i] += values[i];
      }
    }
    std::vector<std::unique_ptr<SharedExecution>> executions;
    for (int member = 0; member < kMembers; ++member) {
      const auto index = static_cast<std::size_t>(member);
      executions.push_back(
          std::make_unique<SharedExecution>(fabric[member], sequences[member], call_in_words));
      executions.back()->start(all_reduce(member, GetParam(), units[index], data[index]));
    }
    const Deadline deadline = Deadline::after(kTestTimeout);
    for (bool done = false; !done;) {
      ASSERT_FALSE(deadline.expired());
      done = true;
      for (const auto& execution : executions) {
        execution->advance();
        done = done && execution->done();
      }
    }
    for (std::size_t member = 0; member < kMembers; ++member) {
      ASSERT_OK(executions[member]->status());
      const std::vector<double> got(data[member].begin(), data[member].end());
      ASSERT_EQ(got, sums) << "turn " << turn << ", member " << member;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, SlotUnits,
                         testing::Values(Algorithm::kOneShot, Algorithm::kDirect),
                         [](const auto& test) {
                           return std::string(test.param == Algorithm::kOneShot ? "one_shot"
                                                                                : "direct");
                         });

}  // namespace
}  // namespace dlaunch
