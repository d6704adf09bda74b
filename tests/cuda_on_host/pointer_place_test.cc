#include "runtime/cuda/pointer_place.h"

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

constexpr int kThis = 1;

MemoryPlace place(cudaMemoryType type, int device) {
  cudaPointerAttributes attributes{};
  attributes.type = type;
  attributes.device = device;
  return place_of_pointer(cudaSuccess, attributes, kThis);
}

TEST(PlaceOfPointer, IsWhatCudaSays) {
  EXPECT_EQ(place(cudaMemoryTypeUnregistered, -2), MemoryPlace::kHost);
  EXPECT_EQ(place(cudaMemoryTypeHost, kThis), MemoryPlace::kHost);
  EXPECT_EQ(place(cudaMemoryTypeDevice, kThis), MemoryPlace::kThisDevice);
  EXPECT_EQ(place(cudaMemoryTypeDevice, 0), MemoryPlace::kOtherDevice);
  EXPECT_EQ(place(cudaMemoryTypeManaged, 0), MemoryPlace::kThisDevice);
}

TEST(PlaceOfPointer, IsTheHostForAnErrorOnlyIfCudaDoesNotKnowThePointer) {
  EXPECT_EQ(place_of_pointer(cudaErrorInvalidValue, {}, kThis), MemoryPlace::kHost);
  for (const cudaError_t error : {cudaErrorLaunchFailure, cudaErrorNoDevice})
    EXPECT_EQ(place_of_pointer(error, {}, kThis), MemoryPlace::kThisDevice);
}

}  // namespace
}  // namespace dlaunch
