// Collectives that read a member's memory where it lies, when that member gives up, leaves or loses
// its memory halfway: what was read is never taken for its data.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/collective/shared_execution.h"
#include "tests/transport/fabric.h"
#include "transport/mesh/mesh.h"
#include "transport/shm/memory_probe.h"

namespace dlaunch {
namespace {

using testing::HasSubstr;

// Longer than a slot and than what is read at a time.
constexpr std::size_t kBytes = std::size_t{16} << 20;
constexpr int kRoot = 0;
constexpr int kReader = 1;

std::string describe(const MessageSignature& /*signature*/) {
  return "a scatter";
}

// A scatter between two ranks of this process, all of it to the reader, of which each step is taken
// here.
class HalfReadScatter : public testing::Test {
 protected:
  HalfReadScatter() { into_.resize(kBytes); }

  // Begins, and stops where the reader has read a part.
  void begin(std::byte* data) {
    std::memset(data, 1, kBytes);
    start(kRoot, data);
    start(kReader, into_.data());
    while (into_.front() == std::byte{0}) {
      root_.advance();
      reader_.advance();
      ASSERT_FALSE(reader_.done()) << "read at once: the scatter is too short for this test";
    }
  }

  void root_gives_up() {
    const Status why(StatusCode::kTimeout, "waited too long");
    root_.cancel(why);
    fabric_[kRoot].fail(why);
  }

  Status reader_goes_on() {
    const Deadline deadline = Deadline::after(kTestTimeout);
    while (!reader_.done() && !deadline.expired()) reader_.advance();
    return reader_.done() ? reader_.status() : Status(StatusCode::kTimeout, "never ended");
  }

  std::vector<std::byte> into_;

  SharedGroup& group(int rank) { return *fabric_[rank].shared_group(); }

  // Begins, and the reader finds that the root's data lie there.
  Status read_from(const SharedLocation& location) {
    std::byte* data = group(kRoot).heap(kRoot).data();
    start(kRoot, data);
    start(kReader, into_.data());
    SharedCell& cell = group(kRoot).cell(SharedGroup::Channel::kLong, 1, kRoot);
    const Deadline deadline = Deadline::after(kTestTimeout);
    while (cell.progress.load() == 0 && !deadline.expired()) root_.advance();
    cell.input = location;
    return reader_goes_on();
  }

  Fabric fabric_ =
      make_mesh_fabric(2, {.transport = TransportChoice::kSharedMemory, .hosts = 1, .wait = {}});

 private:
  void start(int rank, std::byte* data) {
    const std::vector<std::size_t> counts{0, kBytes};
    const SharedShape shape{.kind = CollectiveKind::kScatter,
                            .member = rank,
                            .members = 2,
                            .root = kRoot,
                            .element = 1,
                            .slot = SharedGroup::slot_bytes(SharedGroup::Channel::kLong),
                            .readable = true,
                            .parts = Partition::of(counts)};
    (rank == kRoot ? root_ : reader_)
        .start({.channel = SharedGroup::Channel::kLong,
                .plan = std::make_shared<SharedPlan>(shared_plan(shape)),
                .input = data,
                .input_count = rank == kRoot ? kBytes : 0,
                .output = data,
                .dtype = DType::kU8,
                .in_place = true});
  }

  SharedSequence sequences_[2];
  SharedExecution root_{fabric_[kRoot], sequences_[kRoot], describe};
  SharedExecution reader_{fabric_[kReader], sequences_[kReader], describe};
};

TEST_F(HalfReadScatter, EndsForBothIfNobodyInterferes) {
  std::byte* data = group(kRoot).heap(kRoot).data();
  begin(data);
  EXPECT_OK(reader_goes_on());
  EXPECT_EQ(std::ranges::count(into_, std::byte{1}), static_cast<std::ptrdiff_t>(kBytes));
}

TEST_F(HalfReadScatter, IsAnErrorOnceTheRootHasGivenUp) {
  std::byte* data = group(kRoot).heap(kRoot).data();
  begin(data);
  root_gives_up();
  std::memset(data, 2, kBytes);
  const Status status = reader_goes_on();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.to_string(), HasSubstr("waited too long"));
}

TEST_F(HalfReadScatter, IsAnErrorOnceTheRootHasLeft) {
  std::byte* data = group(kRoot).heap(kRoot).data();
  begin(data);
  std::memset(data, 2, kBytes);
  fabric_.endpoints[kRoot].reset();
  const Status status = reader_goes_on();
  EXPECT_EQ(status.code(), StatusCode::kPeerLeft);
  EXPECT_EQ(status.peer(), kRoot);
}

TEST_F(HalfReadScatter, IsAnErrorIfTheDataWouldLeaveTheHeap) {
  const std::size_t heap = group(kRoot).heap(kRoot).size();
  const Status status = read_from({SharedLocation::Place::kHeap, heap - 5});
  EXPECT_EQ(status.code(), StatusCode::kProtocol) << status.to_string();
  EXPECT_EQ(status.peer(), kRoot);
}

TEST_F(HalfReadScatter, IsAnErrorIfTheDataLieInNoSlot) {
  const Status status = read_from({SharedLocation::Place::kSlot, std::uint64_t{1} << 60});
  EXPECT_EQ(status.code(), StatusCode::kProtocol) << status.to_string();
  EXPECT_EQ(status.peer(), kRoot);
}

TEST_F(HalfReadScatter, IsAnErrorIfTheDataLieInNoPlaceThatThereIs) {
  const Status status = read_from({static_cast<SharedLocation::Place>(77), 0});
  EXPECT_EQ(status.code(), StatusCode::kProtocol) << status.to_string();
  EXPECT_EQ(status.peer(), kRoot);
}

// Whether it pays is another matter.
bool memory_is_readable() {
  const MemoryProbe probe(MemoryProbe::kWordBytes);
  return probe_is_readable(::getpid(), probe.address());
}

class PrivateMemory {
 public:
  PrivateMemory()
      : data_(static_cast<std::byte*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~PrivateMemory() { ::munmap(data_, kBytes); }
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;
  std::byte* data() { return data_; }

 private:
  std::byte* data_;
};

TEST_F(HalfReadScatter, SaysWhyTheRootGaveUpThoughItsMemoryIsGone) {
  if (!memory_is_readable()) GTEST_SKIP() << "process_vm_readv is not permitted";
  auto memory = std::make_unique<PrivateMemory>();
  begin(memory->data());
  root_gives_up();
  memory.reset();
  EXPECT_THAT(reader_goes_on().to_string(), HasSubstr("waited too long"));
}

// As that of a process that has ended in order is.
TEST_F(HalfReadScatter, SaysThatTheRootHasLeftThoughItsMemoryIsGone) {
  if (!memory_is_readable()) GTEST_SKIP() << "process_vm_readv is not permitted";
  auto memory = std::make_unique<PrivateMemory>();
  begin(memory->data());
  fabric_.endpoints[kRoot].reset();
  memory.reset();
  const Status status = reader_goes_on();
  EXPECT_EQ(status.code(), StatusCode::kPeerLeft) << status.to_string();
  EXPECT_EQ(status.peer(), kRoot);
  EXPECT_OK(fabric_[kReader].failure());
}

TEST_F(HalfReadScatter, NamesTheRootThatTakesItsMemoryAway) {
  if (!memory_is_readable()) GTEST_SKIP() << "process_vm_readv is not permitted";
  auto memory = std::make_unique<PrivateMemory>();
  begin(memory->data());
  memory.reset();
  const Status status = reader_goes_on();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.peer(), kRoot);
  EXPECT_THAT(status.to_string(), HasSubstr("its buffer cannot be read"));
}

// Two ranks of this process that exchange what lies in their heaps.
TEST(ExchangeInPlace, EndsForAMemberWhenTheOtherHasReadItsPart) {
  constexpr std::size_t kEach = kBytes / 2;
  Fabric fabric = make_mesh_fabric(2, {.transport = TransportChoice::kSharedMemory});
  SharedSequence sequences[2];
  SharedExecution first(fabric[0], sequences[0], describe);
  SharedExecution second(fabric[1], sequences[1], describe);
  std::vector<std::byte> outputs[2];
  const auto start = [&](int rank, SharedExecution& execution) {
    const SharedShape shape{.kind = CollectiveKind::kAllToAll,
                            .member = rank,
                            .members = 2,
                            .element = 1,
                            .slot = SharedGroup::slot_bytes(SharedGroup::Channel::kLong),
                            .readable = true,
                            .parts = Partition::equal(2, kEach)};
    std::byte* const input = fabric[rank].shared_group()->heap(rank).data();
    std::memset(input, rank + 1, kBytes);
    outputs[rank].resize(kBytes);
    execution.start({.channel = SharedGroup::Channel::kLong,
                     .plan = std::make_shared<SharedPlan>(shared_plan(shape)),
                     .input = input,
                     .input_count = kBytes,
                     .output = outputs[rank].data(),
                     .dtype = DType::kU8,
                     .in_place = true});
  };
  const Deadline deadline = Deadline::after(kTestTimeout);
  start(1, second);
  const SharedCell& cell = fabric[1].shared_group()->cell(SharedGroup::Channel::kLong, 1, 1);
  // Until it says where its input lies.
  while (cell.progress.load() == 0 && !deadline.expired()) second.advance();
  start(0, first);
  while (outputs[0].back() == std::byte{0} && !deadline.expired()) first.advance();
  for (int i = 0; i < 100; ++i) first.advance();
  EXPECT_EQ(outputs[0].back(), std::byte{2}) << "it has read";
  EXPECT_EQ(outputs[1].front(), std::byte{0}) << "the other has not";
  EXPECT_FALSE(first.done()) << "its caller could write into its input";
  while (!(first.done() && second.done()) && !deadline.expired()) {
    second.advance();
    first.advance();
  }
  ASSERT_TRUE(first.done() && second.done());
  EXPECT_OK(first.status());
  EXPECT_OK(second.status());
  std::vector<std::byte> expected(kBytes, std::byte{1});
  std::memset(expected.data() + kEach, 2, kEach);
  for (const auto& output : outputs) {
    EXPECT_EQ(std::memcmp(output.data(), expected.data(), kBytes), 0);
  }
}

}  // namespace
}  // namespace dlaunch
