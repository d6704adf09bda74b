// The contract of a Communicator over MPI. mpirun starts this program on every rank, and all of
// them go through all tests in the same order. A rank on which a test fails ends the job, because
// the others would wait for it; what failed it has printed before.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <mpi.h>

#include "runtime/mpi/mpi_world.h"
#include "tests/comm/contract/contract.h"

namespace dlaunch::testing {
namespace {

// Tests are free functions of GoogleTest, so the world that main() made must lie here.
Communicator* world_of_this_process = nullptr;

// Ranks above 0 print nothing but what fails.
class FailurePrinter final : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* const file = result.file_name() == nullptr ? "?" : result.file_name();
    std::fprintf(stderr, "[rank %d] %s:%d: %s\n", world_of_this_process->rank(), file,
                 result.line_number(), result.message());
  }
};

class JobEnder final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (!test.result()->Failed()) return;
    std::fprintf(stderr, "[rank %d] %s.%s failed\n", world_of_this_process->rank(),
                 test.test_suite_name(), test.name());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
};

int run_tests(int argc, char** argv, const MpiWorldOptions& options) {
  const auto world = connect_mpi_world(options);
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().to_string().c_str());
    return 1;
  }
  world_of_this_process = world->get();
  ::testing::InitGoogleTest(&argc, argv);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if ((*world)->rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());  // NOLINT: GoogleTest's way
    listeners.Append(new FailurePrinter);                          // NOLINT: GoogleTest owns it
  }
  listeners.Append(new JobEnder);  // NOLINT: GoogleTest owns it
  return RUN_ALL_TESTS();
}

}  // namespace

void run_ranks(int world, const std::function<void(Communicator&)>& body) {
  ASSERT_EQ(world, world_of_this_process->size());
  auto fresh = world_of_this_process->split(0, 0);
  ASSERT_TRUE(fresh.ok()) << fresh.status().to_string();
  body(**fresh);
}

std::vector<int> contract_worlds() {
  return {world_of_this_process->size()};
}

// MPI chooses its own.
std::vector<Algorithm> contract_algorithms() {
  return {Algorithm::kAuto};
}

std::uint64_t contract_seed() {
  std::vector<std::int64_t> seed{static_cast<std::int64_t>(std::random_device{}())};
  const Status status = world_of_this_process->broadcast(seed, 0);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return static_cast<std::uint64_t>(seed[0]);
}

}  // namespace dlaunch::testing

// --largest-count=N, the first argument: the most elements of one MPI call.
int main(int argc, char** argv) {
  dlaunch::MpiWorldOptions options{.timeout = std::chrono::seconds(15)};
  const std::string prefix = "--largest-count=";
  if (argc > 1 && std::string(argv[1]).starts_with(prefix)) {
    options.largest_count = std::strtoul(argv[1] + prefix.size(), nullptr, 10);
  }
  return dlaunch::testing::run_tests(argc, argv, options);
}
