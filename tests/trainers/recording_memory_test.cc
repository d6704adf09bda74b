// Recorded work, and a validation, on a fake GPU that has little memory.
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/core/error.h"
#include "nn/models/model.h"
#include "tests/support/thread_ranks.h"
#include "tests/trainers/fake_gpu.h"
#include "trainers/validation/validation.h"

namespace dlaunch::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::size_t kMiB = std::size_t{1} << 20;

class RecordingInLittleMemory : public ::testing::Test {
 protected:
  static constexpr std::int64_t kCount = 1000;

  /// result = value, by way of `bytes` of memory that nobody but the recording needs.
  std::unique_ptr<nn::Recording> record(float value, std::size_t bytes) {
    return gpu_->record([&] {
      void* const scratch = gpu_->allocate(bytes);
      try {
        gpu_->fill(kCount, value, static_cast<float*>(scratch));
        gpu_->copy(result_, scratch, kBytes);
      } catch (...) {
        gpu_->deallocate(scratch, bytes);
        throw;
      }
      gpu_->deallocate(scratch, bytes);
    });
  }
  std::vector<float> result() const {
    std::vector<float> values(kCount);
    gpu_->copy_to_host(values.data(), result_, kBytes);
    return values;
  }

  void SetUp() override { result_ = gpu_->allocate(kBytes); }
  void TearDown() override { gpu_->deallocate(result_, kBytes); }

  static constexpr std::size_t kBytes = kCount * sizeof(float);
  std::shared_ptr<FakeDevice> device_ =
      std::make_shared<FakeDevice>(FakeDeviceOptions{.memory = 64 * kMiB});
  std::unique_ptr<nn::Backend> gpu_ = make_fake_gpu(device_);
  void* result_ = nullptr;
};

TEST_F(RecordingInLittleMemory, IsRepeatedAfterAnotherThatFoundNoRoom) {
  const auto first = record(3.0F, 24 * kMiB);
  EXPECT_THAT([&] { record(5.0F, 48 * kMiB); },
              ThrowsMessage<nn::Error>(HasSubstr("out of fake memory: 48 MiB wanted")));
  first->replay(0);
  EXPECT_THAT(result(), Each(Eq(3.0F)));
}

TEST_F(RecordingInLittleMemory, TakesWhatIsFreedOutsideMeanwhile) {
  const auto first = record(3.0F, 20 * kMiB);
  void* const other = gpu_->allocate(16 * kMiB);
  gpu_->fill(kCount, 1.0F, static_cast<float*>(other));  // may not be done when it is freed
  std::unique_ptr<nn::Recording> second = gpu_->record([&] {
    gpu_->deallocate(other, 16 * kMiB);
    void* const scratch = gpu_->allocate(30 * kMiB);
    gpu_->fill(kCount, 7.0F, static_cast<float*>(scratch));
    gpu_->copy(result_, scratch, kBytes);
    gpu_->deallocate(scratch, 30 * kMiB);
  });
  second->replay(0);
  EXPECT_THAT(result(), Each(Eq(7.0F)));
  first->replay(0);
  EXPECT_THAT(result(), Each(Eq(3.0F)));
}

TEST(ValidationInLittleMemory, NamesTheKeyThatWouldHelp) {
  const auto device = std::make_shared<FakeDevice>(FakeDeviceOptions{.memory = 64 * kMiB});
  const auto gpu = make_fake_gpu(device);
  nn::Generator generator(1);
  const auto network = nn::make_model("small_cnn", {}, *gpu, generator, nullptr);
  const nn::ImageTransform transform({32, 32, 3}, {{0, 0, 0}, {1, 1, 1}}, {});
  constexpr std::size_t kImages = 400;  // the largest layer has 82 MiB of them
  const ValidationShard shard{.images = std::vector<std::uint8_t>(kImages * 32 * 32 * 3),
                              .labels = std::vector<std::int32_t>(kImages)};
  run_threads_as_ranks(1, [&](Communicator& world) {
    EXPECT_THAT(
        [&] { (void)validate(world, *gpu, *network, transform, shard, {.batch_size = kImages}); },
        ThrowsMessage<nn::Error>(AllOf(HasSubstr("out of fake memory: "),
                                       HasSubstr(", in a validation of 400 images at a time "
                                                 "(train.validation_batch_size)"))));
  });
}

}  // namespace
}  // namespace dlaunch::testing
