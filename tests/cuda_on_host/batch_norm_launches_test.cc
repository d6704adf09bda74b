// How many kernels a batch norm takes, which is what it takes time for on small batches, and that a
// world of one makes no collective.
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/core/ops.h"
#include "nn/cuda/cuda_backend.h"
#include "nn/layers/sync_batch_norm.h"
#include "tests/cuda_on_host/grid.h"

namespace dlaunch::nn {
namespace {

/// As if the others had no samples: sums over all ranks are this one's.
class RankOfMany final : public Communicator {
 public:
  explicit RankOfMany(int size) : size_(size) {}
  int calls() const { return calls_; }

  int rank() const override { return 0; }
  int size() const override { return size_; }
  Status run(const CollectiveCall& /*call*/) override {
    ++calls_;
    return Status();
  }
  Work start(const CollectiveCall& /*call*/) override { return unexpected(); }
  Status send(ConstBuffer, int, std::uint64_t) override { return unexpected(); }
  Status recv(Buffer, int, std::uint64_t, int*) override { return unexpected(); }
  Work start_send(ConstBuffer, int, std::uint64_t) override { return unexpected(); }
  Work start_recv(Buffer, int, std::uint64_t, int*) override { return unexpected(); }
  Result<std::unique_ptr<Communicator>> split(int, int) override { return unexpected(); }
  Result<SharedMemory> allocate(std::size_t) override { return unexpected(); }
  void set_timeout(std::chrono::nanoseconds) override {}
  void set_reduce_order(ReduceOrder) override {}
  ReduceOrder reduce_order() const override { return {}; }
  void abort(Status) override {}

 private:
  struct Unexpected {
    template <typename T>
    operator T() const {  // NOLINT(google-explicit-constructor): whatever is to be returned
      throw std::logic_error("batch norm asks for nothing but sums");
    }
  };
  static Unexpected unexpected() { return {}; }

  const int size_;
  int calls_ = 0;
};

struct Launches {
  std::uint64_t forward = 0, backward = 0;
  bool operator==(const Launches&) const = default;
};

void PrintTo(const Launches& launches, std::ostream* out) {
  *out << launches.forward << " forward, " << launches.backward << " backward";
}

struct Case {
  Shape x;
  DType type = DType::kF32;
  BatchNormOptions options;
  Launches alone, of_many;
};

class BatchNormLaunches : public ::testing::TestWithParam<Case> {
 protected:
  /// Of the second pass, for which parameters have their gradients.
  Launches launches_of(SyncBatchNorm& layer) {
    Tensor x = convert(Tensor::zeros(*backend_, GetParam().x), GetParam().type);
    x.set_requires_grad(true);
    Launches launches;
    for (int pass = 0; pass < 2; ++pass) {
      x.set_grad({});
      const std::uint64_t before = cuda_on_host::launches;
      const Tensor y = layer.forward(x);
      launches.forward = cuda_on_host::launches - before;
      const Tensor dy = convert(Tensor::zeros(*backend_, y.shape()), GetParam().type);
      const std::uint64_t between = cuda_on_host::launches;
      backward(y, {.gradient = dy});
      launches.backward = cuda_on_host::launches - between;
    }
    backend_->synchronize();
    return launches;
  }

  std::unique_ptr<CudaBackend> backend_ = make_cuda_backend();
};

TEST_P(BatchNormLaunches, AreAsFewAsItsPassesNeed) {
  const auto [x, type, options, alone, of_many] = GetParam();
  RankOfMany one(1), many(3);
  SyncBatchNorm of_one(*backend_, x[-1], one, options);
  SyncBatchNorm synchronised(*backend_, x[-1], many, options);
  EXPECT_EQ(launches_of(of_one), alone);
  EXPECT_EQ(one.calls(), 0);
  EXPECT_EQ(launches_of(synchronised), of_many);
  EXPECT_EQ(many.calls(), 2 * 2);
}

// A batch of few rows is summed and finished by one kernel and normalised by another. A second one
// adds up what blocks have summed of more rows; one finishes what ranks have summed, or parts.
INSTANTIATE_TEST_SUITE_P(
    Features, BatchNormLaunches,
    ::testing::Values(Case{{32, 128}, DType::kF32, {}, {2, 2}, {3, 2}},
                      Case{{64, 256}, DType::kF32, {}, {2, 2}, {3, 2}},
                      Case{{64, 1024}, DType::kF32, {}, {2, 2}, {3, 2}},
                      Case{{128, 1024}, DType::kBF16, {}, {2, 2}, {3, 2}},
                      Case{{0, 512}, DType::kF32, {}, {1, 1}, {2, 1}},
                      Case{{33, 7}, DType::kF32, {}, {2, 2}, {3, 2}},
                      Case{{64, 512}, DType::kBF16, {.parts = 4}, {3, 3}, {3, 3}}));
INSTANTIATE_TEST_SUITE_P(
    Images, BatchNormLaunches,
    ::testing::Values(Case{{2, 4, 4, 512}, DType::kF32, {}, {2, 2}, {3, 2}},
                      Case{{2, 32, 32, 64}, DType::kBF16, {}, {3, 3}, {4, 3}},
                      Case{{2, 32, 32, 64}, DType::kBF16, {.parts = 2}, {4, 4}, {4, 4}},
                      Case{{2, 4, 4, 512}, DType::kBF16, {.pool = {{2}}}, {2, 2}, {3, 2}},
                      Case{{2, 48, 48, 64}, DType::kBF16, {.pool = {{2}}}, {3, 3}, {4, 3}}));

}  // namespace
}  // namespace dlaunch::nn
