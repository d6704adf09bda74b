// The server where the system has no memory for it: each allocation on its thread fails once.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/base/token.h"
#include "runtime/rendezvous/store_server.h"
#include "runtime/rendezvous/tcp_store.h"
#include "tests/support/soon.h"

namespace {

thread_local bool is_server = true;     // but for the test's own thread
std::atomic<int> allocations_left{-1};  // on the server's thread, before one fails; < 0: none fails
std::atomic<bool> has_failed{false};

}  // namespace

// Not inlined: the compiler would take them for malloc and free that do not match.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (is_server && allocations_left.load() >= 0 && allocations_left.fetch_sub(1) == 0) {
    has_failed = true;
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

namespace dlaunch {
namespace {

using testing::soon;

class StoreWithoutMemory : public ::testing::Test {
 protected:
  StoreWithoutMemory() {
    is_server = false;
    server_ = StoreServer::start({.token = token_}).value_or_throw();
  }
  ~StoreWithoutMemory() override { allocations_left = -1; }
  std::unique_ptr<TcpStore> client() const {
    return TcpStore::connect("127.0.0.1:" + std::to_string(server_->port()), token_, soon())
        .value_or_throw();
  }
  // Does it again and again; each time one allocation later fails, until all are there.
  template <typename Action>
  void fail_each_allocation_of(const Action& action) const {
    int allocation = 0;
    do {
      has_failed = false;
      const auto asking = client();
      allocations_left = allocation++;
      action(*asking);
      allocations_left = -1;
      const auto witness = client();
      const auto known = witness->get("known", soon());
      ASSERT_TRUE(known.ok()) << known.status().to_string();
      ASSERT_EQ(*known, "value");
    } while (has_failed);
    EXPECT_GT(allocation, 3);
  }

  const std::string token_ = make_token();
  std::unique_ptr<StoreServer> server_;
};

TEST_F(StoreWithoutMemory, AnswersOrDropsWhoAsksAndServesTheOthers) {
  ASSERT_TRUE(client()->set("known", "value").ok());
  const std::string big(100'000, 'x');
  int round = 0;
  fail_each_allocation_of([&](TcpStore& store) {
    const std::string key = "a key that is too long for its string " + std::to_string(++round);
    const Status set = store.set(key, big);
    if (set.ok()) {
      allocations_left = -1;
      EXPECT_EQ(client()->get(key, soon()).value_or_throw(), big);
      return;
    }
    EXPECT_TRUE(set.code() == StatusCode::kUnavailable || set.code() == StatusCode::kPeerLost)
        << set.to_string();
  });
  fail_each_allocation_of([&](TcpStore& store) { (void)store.get("known", soon()).ok(); });
  fail_each_allocation_of([&](TcpStore& store) { (void)store.add("number", 1).ok(); });
  fail_each_allocation_of([&](TcpStore& store) {
    (void)store.set_owned("a key that only its owner's connection keeps there", big).ok();
  });
  // However a connection ended: it is counted no more, and its keys have gone.
  allocations_left = -1;
  const auto other = client();
  const auto only_one = [&] {
    const auto counts = other->stat().value_or_throw();
    const bool alone = std::ranges::find(counts, std::pair<std::string, std::string>{
                                                     "clients", "1"}) != counts.end();
    return alone && other->list("a key that only").value_or_throw().empty();
  };
  EXPECT_TRUE(testing::becomes_true(only_one, soon()));
}

}  // namespace
}  // namespace dlaunch
