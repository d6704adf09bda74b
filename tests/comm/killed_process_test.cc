// A rank that dies by SIGKILL in the middle of a collective. dlaunch would end the others before
// they can tell what they saw, so the ranks are plain child processes of this test.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/token.h"
#include "runtime/comm/communicator.h"
#include "runtime/rendezvous/store_server.h"
#include "tests/support/soon.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kWorld = 4;
constexpr int kVictim = 2;

// A pipe that ends with this object.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_), 0); }
  ~Pipe() {
    close_reader();
    close_writer();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void close_reader() { close_end(ends_[0]); }
  void close_writer() { close_end(ends_[1]); }
  void write(const std::string& text) const {
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  /// Up to the end of the stream.
  std::string read_all() const {
    std::string text;
    char buffer[512];
    ssize_t count = 0;
    while ((count = ::read(ends_[0], buffer, sizeof buffer)) > 0) {
      text.append(buffer, static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  int ends_[2] = {-1, -1};
};

// All-reduces without end. The victim kills itself once the others are surely inside one: it hears
// nothing of the collective that it never calls.
std::string run_rank(int rank, const std::string& store, const std::string& token,
                     bool asynchronous) {
  const JobEnvironment job{.rank = rank,
                           .world_size = kWorld,
                           .local_rank = rank,
                           .local_world_size = kWorld,
                           .store_address = store,
                           .token = token,
                           .timeout = 20s};
  auto world = connect_world(job, nullptr);
  if (!world.ok()) return world.status().to_string();
  std::vector<float> data(300'000, 1.0F);
  auto begin = Clock::now();
  for (int round = 0;; ++round) {
    if (rank == kVictim && round == 5) ::kill(::getpid(), SIGKILL);
    begin = Clock::now();
    const Status status =
        asynchronous ? (*world)->start_all_reduce(data).wait() : (*world)->all_reduce(data);
    if (status.ok()) continue;
    const bool named = status.code() == StatusCode::kPeerLost && status.peer() == kVictim;
    const bool in_time = Clock::now() - begin < kPromptly;
    return std::string(named && in_time ? "as expected: " : "wrong: ") + status.to_string();
  }
}

class KilledProcess : public ::testing::TestWithParam<bool> {};

TEST_P(KilledProcess, IsNamedByEveryOtherRankLongBeforeTheDeadline) {
  const std::string token = make_token();
  std::vector<Pipe> to_rank(kWorld);  // the store's address, once it is known
  std::vector<Pipe> from_rank(kWorld);
  std::vector<pid_t> children;
  for (std::size_t rank = 0; rank < kWorld; ++rank) {  // before this process has any threads
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (Pipe& pipe : to_rank) pipe.close_writer();
      const std::string store = to_rank[rank].read_all();
      from_rank[rank].write(run_rank(static_cast<int>(rank), store, token, GetParam()));
      ::_exit(0);
    }
    children.push_back(child);
  }
  auto store = StoreServer::start({.token = token});
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    to_rank[rank].write("127.0.0.1:" + std::to_string((*store)->port()));
  }
  for (Pipe& pipe : to_rank) pipe.close_writer();
  for (Pipe& pipe : from_rank) pipe.close_writer();
  for (std::size_t rank = 0; rank < kWorld; ++rank) {
    int how = 0;
    ASSERT_EQ(::waitpid(children[rank], &how, 0), children[rank]);
    if (static_cast<int>(rank) == kVictim) {
      EXPECT_TRUE(WIFSIGNALED(how)) << from_rank[rank].read_all();
      continue;
    }
    const std::string report = from_rank[rank].read_all();
    EXPECT_THAT(report, AllOf(HasSubstr("as expected: "), HasSubstr("peer 2: ")))
        << "rank " << rank;
    // The progress thread may have heard of the death between two calls.
    const bool between_calls =
        GetParam() && report.find("the communicator failed earlier: ") != std::string::npos;
    if (!between_calls) {
      EXPECT_THAT(report, HasSubstr("all_reduce #")) << "rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, KilledProcess, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "asynchronous" : "blocking");
});

}  // namespace
}  // namespace dlaunch::testing
