// The socket of `dlaunch status` on a loop of the test.
#include "launcher/status/status_server.h"

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/temporary_folder.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;

// All descriptors of this process but those that it has.
class NoDescriptorLeft {
 public:
  NoDescriptorLeft() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low{.rlim_cur = 64, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    for (int held = dup(0); held >= 0; held = dup(0)) held_.push_back(held);
  }
  ~NoDescriptorLeft() {
    for (const int held : held_) close(held);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoDescriptorLeft(const NoDescriptorLeft&) = delete;
  NoDescriptorLeft& operator=(const NoDescriptorLeft&) = delete;

 private:
  rlimit before_{};
  std::vector<int> held_;
};

// The socket is in `folder`.
std::unique_ptr<StatusServer> serve_in(const std::string& folder, EventLoop& loop,
                                       StatusServer::Handler handler) {
  setenv("DLAUNCH_STATUS_DIR", folder.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
  auto server = std::make_unique<StatusServer>(loop, "0123456789ab", std::move(handler));
  unsetenv("DLAUNCH_STATUS_DIR");  // NOLINT(concurrency-mt-unsafe)
  return server;
}

TEST(StatusServer, LetsGoOfTheOldestClientWhenThereAreMoreThanSixteen) {
  const TemporaryFolder temporary;
  EventLoop loop;
  const auto server = serve_in(temporary.path(), loop, [](StatusRequest, const auto&) {});
  std::vector<Descriptor> clients;
  const auto has_been_let_go = [](const Descriptor& client) {
    char byte = 0;
    return recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  bool late = false;
  loop.call_at(EventLoop::Clock::now() + 20s, [&] { late = true; });
  while (clients.size() < 17) {
    auto client = connect_status(temporary.path() + "/0123456789ab");
    ASSERT_TRUE(client.ok()) << client.status().to_string();
    clients.push_back(*std::move(client));
    if (clients.size() <= 16) loop.run_once();
  }
  for (const Descriptor& client : clients) EXPECT_FALSE(has_been_let_go(client));
  while (!has_been_let_go(clients.front()) && !late) loop.run_once();
  EXPECT_FALSE(late);
  for (std::size_t i = 1; i < clients.size(); ++i) EXPECT_FALSE(has_been_let_go(clients[i])) << i;
}

TEST(StatusServer, LetsTheLoopRestWhileThereIsNoDescriptorForAClient) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer takes an object for bad if it cannot open a pipe to look at it";
#endif
  const TemporaryFolder temporary;
  EventLoop loop;
  bool asked = false;
  const auto server = serve_in(temporary.path(), loop,
                               [&](StatusRequest, const StatusServer::Answer&) { asked = true; });
  const auto client = connect_status(temporary.path() + "/0123456789ab");
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  ASSERT_EQ(send(client->get(), "l", 1, MSG_NOSIGNAL), 1);
  std::optional<NoDescriptorLeft> none(std::in_place);
  bool over = false;
  loop.call_at(EventLoop::Clock::now() + 500ms, [&] { over = true; });
  int turns = 0;
  while (!over) {
    loop.run_once();
    ++turns;
  }
  EXPECT_LT(turns, 20);
  none.reset();
  over = false;
  loop.call_at(EventLoop::Clock::now() + 20s, [&] { over = true; });
  while (!asked && !over) loop.run_once();
  EXPECT_TRUE(asked);
}

}  // namespace
}  // namespace dlaunch::testing
