// How ranks of a host come to share memory (transport/shm/bootstrap.h), and who does not.
#include "transport/shm/bootstrap.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/descriptor_room.h"
#include "tests/support/sanitized.h"
#include "tests/transport/fabric.h"

namespace dlaunch {
namespace {

using ::testing::HasSubstr;

class Bootstrap : public ::testing::Test {
 protected:
  // Of which the leader has all doorbells, and a member as many again.
  static constexpr int kLanes = 300;  // so that they are more than one packet carries
  static constexpr std::int64_t kDescriptors = 4 * 3 * kLanes;

  void SetUp() override {
    const std::int64_t limit = raise_descriptor_limit(kDescriptors);
    if (limit < kDescriptors) GTEST_SKIP() << "the hard limit of open files is " << limit;
    LocalSocket listener = LocalSocket::listen().value_or_throw();
    name_ = listener.name().value_or_throw();
    leader_ = GroupLeader::start(std::move(listener), identity(1), probe_).value_or_throw();
  }

  GroupIdentity identity(int rank) const {
    return {.token = token_,
            .job = 5,
            .rank = rank,
            .world_size = 10,
            .lanes = kLanes,
            .candidates = {1, 4, 7}};
  }
  Result<JoinedGroup> join(const GroupIdentity& identity) {
    return join_group(name_, identity, probe_, Deadline::after(kTestTimeout));
  }

  std::string token_ = make_token();
  MemoryProbe probe_{MemoryProbe::kTimedBytes};
  std::string name_;
  std::unique_ptr<GroupLeader> leader_;
};

TEST_F(Bootstrap, GivesAMemberTheMemoryAndAllDoorbells) {
  const Result<JoinedGroup> joined = join(identity(4));
  ASSERT_OK(joined.status());
  EXPECT_TRUE(joined->readable);  // it is the same process
  const HostGroup& member = joined->group;
  EXPECT_EQ(member.doorbells.size(), 900U);
  const HostGroup leader = std::move(*leader_).finish();
  EXPECT_EQ(leader.record(1).pid.load(), ::getpid());
  EXPECT_EQ(leader.record(2).pid.load(), 0);
  EXPECT_NE(leader.memory.data(), member.memory.data());
  leader.at<std::uint64_t>(leader.layout.heaps_at) = 77;
  EXPECT_EQ(member.at<std::uint64_t>(member.layout.heaps_at), 77U);
}

// It would be in every core, and the dump would make memory of all of it.
TEST_F(Bootstrap, KeepsTheSegmentOutOfCores) {
  std::ifstream maps("/proc/self/smaps");
  bool of_segment = false;
  int segments = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:dlaunch") != std::string::npos) of_segment = true;
    if (!of_segment || !line.starts_with("VmFlags:")) continue;
    EXPECT_THAT(line, HasSubstr(" dd")) << "MADV_DONTDUMP";
    of_segment = false;
    ++segments;
  }
  EXPECT_GE(segments, 1);
}

// Else a rank that has less of it mapped than it thinks would end with SIGBUS.
TEST_F(Bootstrap, KeepsTheSegmentAsLongAsItIs) {
  int segments = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (!std::filesystem::read_symlink(entry, gone).string().starts_with("/memfd:dlaunch "))
      continue;
    ++segments;
    const int file = std::stoi(entry.path().filename());
    struct stat about {};
    ASSERT_EQ(::fstat(file, &about), 0);
    for (const off_t bytes : {about.st_size - 4096, about.st_size + 4096}) {
      EXPECT_NE(::ftruncate(file, bytes), 0);
      EXPECT_EQ(errno, EPERM);
    }
  }
  EXPECT_GE(segments, 1);
}

TEST_F(Bootstrap, LetsInNobodyWhoDoesNotBelong) {
  GroupIdentity liar = identity(4);
  liar.token = make_token();
  GroupIdentity outsider = identity(4);
  outsider.rank = 5;
  GroupIdentity other_job = identity(4);
  other_job.job = 6;
  GroupIdentity other_lanes = identity(4);
  other_lanes.lanes = 2;
  GroupIdentity leader_again = identity(1);
  for (const GroupIdentity& each : {liar, outsider, other_job, other_lanes, leader_again}) {
    const Status refused = join(each).status();
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable) << refused.to_string();
  }
  EXPECT_OK(join(identity(4)).status());
  EXPECT_FALSE(join(identity(4)).ok());  // a second one
  EXPECT_OK(join(identity(7)).status());
}

TEST_F(Bootstrap, KeepsWhyItHasRefusedSomeone) {
  GroupIdentity liar = identity(4);
  liar.token = make_token();
  EXPECT_FALSE(join(liar).ok());
  EXPECT_OK(join(identity(4)).status());
  (void)std::move(*leader_).finish();
  EXPECT_THAT(leader_->refusal(), HasSubstr("does not know the job's token"));
}

// Sets a limit of this process while it lives.
class ResourceLimit {
 public:
  ResourceLimit(int resource, std::size_t most) : resource_(resource) {
    ::getrlimit(resource_, &before_);
    const rlimit limit{.rlim_cur = most, .rlim_max = before_.rlim_max};
    EXPECT_EQ(::setrlimit(resource_, &limit), 0);
  }
  ~ResourceLimit() { ::setrlimit(resource_, &before_); }
  ResourceLimit(const ResourceLimit&) = delete;
  ResourceLimit& operator=(const ResourceLimit&) = delete;

 private:
  int resource_;
  rlimit before_{};
};

// Beyond the limit the system would end the process.
TEST_F(Bootstrap, KeepsToTheLimitOfFileSizes) {
  GroupIdentity few_lanes = identity(1);
  few_lanes.lanes = 2;
  const auto start = [&] {
    return GroupLeader::start(LocalSocket::listen().value_or_throw(), few_lanes, probe_);
  };
  const SegmentLayout bare = SegmentLayout::of(3, 2, 0);
  {
    const ResourceLimit limit(RLIMIT_FSIZE, bare.total_bytes + 3 * kHugePage + 4096);
    auto leader = start();
    ASSERT_OK(leader.status());
    const HostGroup group = std::move(**leader).finish();
    EXPECT_EQ(group.layout.heap_bytes, kHugePage);
    group.at<std::uint64_t>(group.layout.total_bytes - 8) = 77;  // all of it can be used
  }
  {
    const ResourceLimit limit(RLIMIT_FSIZE, bare.total_bytes);
    auto leader = start();
    ASSERT_OK(leader.status());
    EXPECT_EQ(std::move(**leader).finish().layout.heap_bytes, 0U);
  }
  const ResourceLimit limit(RLIMIT_FSIZE, bare.total_bytes - 1);
  const Status refused = start().status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.to_string(), HasSubstr("ulimit -f"));
}

TEST_F(Bootstrap, KeepsToTheLimitOfTheAddressSpace) {
  if (testing::kSanitized) GTEST_SKIP() << "sanitizers need all of the address space";
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const std::size_t used = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  GroupIdentity few_lanes = identity(1);
  few_lanes.lanes = 2;
  const std::size_t bare = SegmentLayout::of(3, 2, 0).total_bytes;
  const auto start = [&] {
    return GroupLeader::start(LocalSocket::listen().value_or_throw(), few_lanes, probe_);
  };
  {
    const ResourceLimit limit(RLIMIT_AS, used + bare + (std::size_t{600} << 20));
    auto leader = start();
    ASSERT_OK(leader.status());
    const SegmentLayout layout = std::move(**leader).finish().layout;
    EXPECT_GT(layout.heap_bytes, std::size_t{20} << 20);
    EXPECT_LE(layout.heap_bytes, std::size_t{50} << 20);
  }
  const ResourceLimit limit(RLIMIT_AS, used + bare / 2);
  const Status refused = start().status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.to_string(), HasSubstr("ulimit -v"));
}

TEST_F(Bootstrap, IsNotHeldUpByStrangers) {
  std::vector<LocalSocket> strangers;
  const Deadline deadline = Deadline::after(kTestTimeout);
  const std::vector<std::byte> garbage(33, std::byte{1});
  for (int i = 0; i < 40; ++i) {
    strangers.push_back(LocalSocket::connect(name_, deadline).value_or_throw());  // says nothing
    if (i % 2 == 0) {
      EXPECT_OK(strangers.back().send(garbage, {}, deadline));
    }
    if (i % 3 == 0) strangers.back().close();
  }
  EXPECT_OK(join(identity(4)).status());
}

TEST_F(Bootstrap, GivesUpWhereNobodyAnswers) {
  const Status nobody =
      join_group("no such name", identity(4), probe_, Deadline::after(kTestTimeout)).status();
  EXPECT_THAT(nobody.to_string(), HasSubstr("Connection refused"));
  const LocalSocket silent = LocalSocket::listen().value_or_throw();
  const auto soon = Deadline::after(std::chrono::milliseconds(50));
  const Status waited =
      join_group(silent.name().value_or_throw(), identity(4), probe_, soon).status();
  EXPECT_EQ(waited.code(), StatusCode::kTimeout);
}

// Linux may report the end of a connection to who looks while the last packet comes with the end
// behind it: some 20 times in a million such looks.
TEST(LocalSocket, TakesTheLastPacketAlsoIfTheEndComesWhileItLooks) {
  constexpr int kRounds = 10'000;
  const LocalSocket listener = LocalSocket::listen().value_or_throw();
  const std::string name = listener.name().value_or_throw();
  std::optional<LocalSocket> other;
  std::atomic<int> begun = 0, done = 0;
  const auto wait_for = [](const std::atomic<int>& what, int round) {
    while (what.load() < round) std::this_thread::yield();
  };
  const std::byte sent{7};
  std::thread sender([&] {
    for (int round = 1; round <= kRounds; ++round) {
      wait_for(begun, round);
      EXPECT_TRUE(other->send(std::span(&sent, 1), {}, Deadline::after(kTestTimeout)).ok());
      other.reset();
      done = round;
    }
  });
  for (int round = 1; round <= kRounds; ++round) {
    const auto deadline = Deadline::after(kTestTimeout);
    const LocalSocket own = LocalSocket::connect(name, deadline).value_or_throw();
    other = listener.accept().value_or_throw();
    begun = round;
    std::byte packet{};
    const Status received = own.receive(std::span(&packet, 1), nullptr, deadline);
    EXPECT_TRUE(received.ok()) << round << ": " << received.to_string();
    EXPECT_EQ(packet, sent);
    wait_for(done, round);
    EXPECT_EQ(own.receive(std::span(&packet, 1), nullptr, deadline).code(),
              StatusCode::kUnavailable);
  }
  sender.join();
}

TEST_F(Bootstrap, GivesUpWhereNobodyIsLetIn) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr_un any{.sun_family = AF_UNIX, .sun_path = {}};
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(sa_family_t)), 0);
  ASSERT_EQ(::listen(socket.get(), 0), 0);
  const LocalSocket full(std::move(socket));
  const std::string name = full.name().value_or_throw();
  std::vector<LocalSocket> queue;
  Status refused;
  while (refused.ok() && queue.size() < 10) {
    auto next = LocalSocket::connect(name, Deadline::after(std::chrono::milliseconds(50)));
    refused = next.status();
    if (next.ok()) queue.push_back(*std::move(next));
  }
  EXPECT_EQ(refused.code(), StatusCode::kTimeout);
}

}  // namespace
}  // namespace dlaunch
