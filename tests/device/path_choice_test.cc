// Which path is taken, from what ranks tell each other.
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/path_choice.h"

namespace dlaunch {
namespace {

using ::testing::HasSubstr;

// Ranks on one host, each with a GPU of its own that reaches all others.
std::vector<DeviceFacts> separate_gpus(std::size_t ranks) {
  std::vector<DeviceFacts> facts(ranks);
  for (std::size_t i = 0; i < ranks; ++i) {
    facts[i] = {.host = 1,
                .uuid = {static_cast<std::uint8_t>(i)},
                .has_nccl = 1,
                .shares_memory = 1,
                .reaches_all = 1};
  }
  return facts;
}

std::vector<DeviceFacts> one_gpu(std::size_t ranks) {
  auto facts = separate_gpus(ranks);
  for (DeviceFacts& fact : facts) fact.uuid = {0xab};
  return facts;
}

std::vector<DeviceFacts> wanting(DevicePathKind kind, std::vector<DeviceFacts> facts) {
  for (DeviceFacts& fact : facts) fact.wanted = kind;
  return facts;
}

PathCandidate first_choice(const std::vector<DeviceFacts>& facts) {
  const auto candidates = choose_device_path(facts);
  EXPECT_TRUE(candidates.ok()) << candidates.status().to_string();
  return candidates->front();
}

std::string refusal(const std::vector<DeviceFacts>& facts) {
  const auto candidates = choose_device_path(facts);
  EXPECT_FALSE(candidates.ok());
  return candidates.status().to_string();
}

TEST(PathChoice, IsNcclWhereEveryRankHasAGpu) {
  EXPECT_EQ(first_choice(separate_gpus(4)).kind, DevicePathKind::kNccl);
  auto on_two_hosts = separate_gpus(4);
  on_two_hosts[3].host = 2;
  EXPECT_EQ(first_choice(on_two_hosts).kind, DevicePathKind::kNccl);
}

TEST(PathChoice, IsSharedMemoryWhereRanksShareAGpuAndSaysWhichRanksDo) {
  auto facts = separate_gpus(4);
  facts[3].uuid = facts[1].uuid;
  const PathCandidate choice = first_choice(facts);
  EXPECT_EQ(choice.kind, DevicePathKind::kIpc);
  EXPECT_THAT(choice.reason, HasSubstr("ranks 1 and 3 share GPU-01000000-"));
}

TEST(PathChoice, IsSharedMemoryInABuildWithoutNccl) {
  auto facts = separate_gpus(2);
  facts[1].has_nccl = 0;
  EXPECT_EQ(first_choice(facts).kind, DevicePathKind::kIpc);
}

TEST(PathChoice, IsStagingWhereNothingElseWorks) {
  auto facts = one_gpu(3);
  facts[2].host = 2;
  EXPECT_EQ(first_choice(facts).kind, DevicePathKind::kStaging);
  EXPECT_THAT(first_choice(facts).reason, HasSubstr("ranks 0 and 2 are on different hosts"));
  facts = one_gpu(2);
  facts[1].shares_memory = 0;
  EXPECT_EQ(first_choice(facts).kind, DevicePathKind::kStaging);
  EXPECT_EQ(first_choice(one_gpu(kMostOperands + 1)).kind, DevicePathKind::kStaging);
}

TEST(PathChoice, EndsWithStagingInCaseTheOthersFailToConnect) {
  const auto candidates = choose_device_path(separate_gpus(2));
  ASSERT_EQ(candidates->size(), 3U);
  EXPECT_EQ(candidates->back().kind, DevicePathKind::kStaging);
}

TEST(PathChoice, OfOneRankNeedsNothing) {
  auto alone = one_gpu(1);
  alone[0].has_nccl = 0;
  alone[0].shares_memory = 0;
  EXPECT_EQ(first_choice(alone).kind, DevicePathKind::kIpc);
}

TEST(PathChoice, IsWhatWasAskedForOrOneClearLine) {
  const auto staging = first_choice(wanting(DevicePathKind::kStaging, separate_gpus(2)));
  EXPECT_EQ(staging.kind, DevicePathKind::kStaging);
  EXPECT_THAT(refusal(wanting(DevicePathKind::kNccl, one_gpu(2))),
              HasSubstr("the path nccl was asked for, but ranks 0 and 1 share GPU-ab"));
  auto facts = wanting(DevicePathKind::kIpc, separate_gpus(2));
  facts[1].reaches_all = 0;
  EXPECT_THAT(refusal(facts), HasSubstr("the GPU of rank 1 cannot read all the others' memory"));
}

TEST(PathChoice, LetsFewRanksOfOneGpuMeetOncePerBucket) {
  constexpr std::size_t kBucket = std::size_t{25} << 20;
  for (const std::size_t ranks : {2U, 3U}) {
    const MemoryPathOptions options = memory_options_for(one_gpu(ranks));
    EXPECT_GE(options.slot_bytes, kBucket);
    EXPECT_EQ(options.one_shot_bytes, options.slot_bytes);
  }
  auto on_two_gpus = one_gpu(3);
  on_two_gpus[2].uuid = {0xcd};
  for (const auto& facts : {on_two_gpus, separate_gpus(2), one_gpu(4)}) {
    const MemoryPathOptions options = memory_options_for(facts);
    EXPECT_LT(options.one_shot_bytes, options.slot_bytes) << "slices";
  }
}

TEST(PathChoice, MustBeTheSameWishOnAllRanks) {
  auto facts = separate_gpus(3);
  facts[2].wanted = DevicePathKind::kStaging;
  EXPECT_EQ(choose_device_path(facts).status().code(), StatusCode::kMismatch);
  EXPECT_THAT(refusal(facts), HasSubstr("rank 2 wants staging"));
}

TEST(PathChoice, HasNames) {
  EXPECT_EQ(device_path_from_name("ipc"), DevicePathKind::kIpc);
  EXPECT_EQ(device_path_from_name("auto"), DevicePathKind::kAuto);
  EXPECT_EQ(device_path_from_name("NCCL"), std::nullopt);
}

}  // namespace
}  // namespace dlaunch
