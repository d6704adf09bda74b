// Calls for which one rank has no memory: it says so, and so do the others. This program's operator
// new fails when it is told to.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <latch>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/comm/objects.h"
#include "tests/support/thread_ranks.h"

namespace {

constexpr std::size_t kLong = 1'000'000;
// The next allocation that is as long fails, once.
std::atomic<bool> next_long_one_fails{false};

void* allocate(std::size_t bytes) {
  if (bytes >= kLong && next_long_one_fails.exchange(false)) throw std::bad_alloc();
  // NOLINTNEXTLINE(cppcoreguidelines-no-malloc): this is operator new
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes); memory != nullptr) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined: where GCC sees only one of a pair it takes malloc and free for a mistake.
// NOLINTBEGIN(cppcoreguidelines-no-malloc)
void* operator new(std::size_t bytes) {
  return allocate(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t& /*nothrow*/) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
// NOLINTEND(cppcoreguidelines-no-malloc)

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kWorld = 3;

struct Hungry {
  std::string name;
  std::function<Status(Communicator&, std::vector<float>&)> call;
};

std::vector<Hungry> hungry_calls() {
  std::vector<Hungry> calls{
      {"average_of_bytes",
       [](Communicator& comm, std::vector<float>& data) {
         const Buffer bytes(data.data(), data.size(), DType::kU8);
         return comm.all_reduce(bytes, ReduceOp::kAvg, Algorithm::kRing);
       }},
      {"asynchronous_average_of_bytes", [](Communicator& comm, std::vector<float>& data) {
         const Buffer bytes(data.data(), data.size(), DType::kU8);
         return comm.start_all_reduce(bytes, ReduceOp::kAvg, Algorithm::kRing).wait();
       }}};
  calls.push_back({"bytes_of_unknown_length", [](Communicator& comm, std::vector<float>& data) {
                     const std::string_view bytes(reinterpret_cast<const char*>(data.data()),
                                                  kLong);
                     return all_gather_bytes(comm, comm.rank() == 1 ? bytes : "").status();
                   }});
  // What these need depends on how ranks reach each other.
  const Algorithm algorithm = share_memory() ? Algorithm::kDirect : Algorithm::kOneShot;
  const auto scatter = [](std::vector<float>& data) {
    return Buffer(data.data(), data.size() / kWorld, DType::kF32);
  };
  calls.push_back({"blocking", [=](Communicator& comm, std::vector<float>& data) {
                     return share_memory()
                                ? comm.reduce_scatter(data, scatter(data), ReduceOp::kSum)
                                : comm.all_reduce(data, ReduceOp::kSum, algorithm);
                   }});
  calls.push_back(
      {"asynchronous", [=](Communicator& comm, std::vector<float>& data) {
         return share_memory()
                    ? comm.start_reduce_scatter(data, scatter(data), ReduceOp::kSum).wait()
                    : comm.start_all_reduce(data, ReduceOp::kSum, algorithm).wait();
       }});
  return calls;
}

class NoMemory : public ::testing::TestWithParam<std::size_t> {};

TEST_P(NoMemory, OnOneRankIsToldToAll) {
  const Hungry hungry = hungry_calls()[GetParam()];
  std::latch ready(kWorld);
  std::latch armed(kWorld);
  std::atomic<int> first_hand{0};
  run_threads_as_ranks(kWorld, [&](Communicator& comm) {
    std::vector<float> data(3 * kLong, 1.0F);
    ready.arrive_and_wait();
    if (comm.rank() == 0) next_long_one_fails = true;
    armed.arrive_and_wait();
    const Status status = hungry.call(comm, data);
    EXPECT_EQ(status.code(), StatusCode::kIo) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("no memory to carry it out"));
    if (status.to_string().find("reported by") == std::string::npos) ++first_hand;
    EXPECT_EQ(comm.barrier().code(), StatusCode::kIo) << "and it stays failed";
  });
  EXPECT_EQ(first_hand, 1);
}

TEST(NoMemoryOfOne, ForAMessageToOneselfFailsIt) {
  run_threads_as_ranks(1, [](Communicator& comm) {
    const std::vector<float> data(kLong);
    next_long_one_fails = true;
    const Status status = comm.send(data, 0);
    EXPECT_EQ(status.code(), StatusCode::kIo) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("no memory for a message of 4000000 bytes"));
  });
}

INSTANTIATE_TEST_SUITE_P(Calls, NoMemory, ::testing::Range(std::size_t{0}, hungry_calls().size()),
                         [](const auto& test) { return hungry_calls()[test.param].name; });

}  // namespace
}  // namespace dlaunch::testing
