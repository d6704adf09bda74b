// What dbench makes of results that are wrong.
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tools/bench/sweep.h"

namespace dlaunch::bench {
namespace {

// A rank on its own. Sums of f32 come out as they went in, and `addend` more; those of the
// measurement itself, which are doubles, are right.
class WrongAdder : public Communicator {
 public:
  explicit WrongAdder(float addend) : addend_(addend) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  Status run(const CollectiveCall& call) override {
    if (call.kind == CollectiveKind::kAllReduce && call.output.dtype == DType::kF32) {
      static_cast<float*>(call.output.data)[call.output.count - 1] += addend_;
    }
    return {};
  }
  ReduceOrder reduce_order() const override { return ReduceOrder::kAny; }

  // What no sweep calls.
  Work start(const CollectiveCall& /*call*/) override { return Work::finished(none()); }
  Status send(ConstBuffer /*data*/, int /*peer*/, std::uint64_t /*tag*/) override { return none(); }
  Status recv(Buffer /*data*/, int /*peer*/, std::uint64_t /*tag*/, int* /*sender*/) override {
    return none();
  }
  Work start_send(ConstBuffer /*data*/, int /*peer*/, std::uint64_t /*tag*/) override {
    return Work::finished(none());
  }
  Work start_recv(Buffer /*data*/, int /*peer*/, std::uint64_t /*tag*/, int* /*sender*/) override {
    return Work::finished(none());
  }
  Result<std::unique_ptr<Communicator>> split(int /*color*/, int /*key*/) override {
    return none();
  }
  Result<SharedMemory> allocate(std::size_t /*bytes*/) override { return none(); }
  void set_timeout(std::chrono::nanoseconds /*timeout*/) override {}
  void set_reduce_order(ReduceOrder /*order*/) override {}
  void abort(Status /*why*/) override {}

 private:
  static Status none() { return Status(StatusCode::kInvalidArgument, "not of this fake"); }
  const float addend_;
};

// What run_sweep returns, and its stderr.
std::pair<bool, std::string> sweep(float addend, bool verify) {
  WrongAdder world(addend);
  Options options;
  options.counts = {1, 1000};
  options.limits = {.warmup = 0, .least = 2, .most = 2, .seconds = 60};
  options.verify = verify;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const bool correct = run_sweep(world, options);
  ::testing::internal::GetCapturedStdout();
  return {correct, ::testing::internal::GetCapturedStderr()};
}

TEST(Sweep, IsNoSuccessIfAResultIsWrong) {
  for (const bool verify : {false, true}) {
    EXPECT_EQ(sweep(0, verify), std::pair(true, std::string()));
    EXPECT_EQ(sweep(0.01F, verify),
              std::pair(false, std::string("dbench: all_reduce gave wrong results, see the column "
                                           "'error'\n")));
  }
}

}  // namespace
}  // namespace dlaunch::bench
