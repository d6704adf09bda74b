// The thread that drives a lane for all: what it finds out about others' operations it tells at
// once, whatever it waits for itself. With threads as ranks.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/comm/endpoint_communicator.h"
#include "tests/support/soon.h"
#include "tests/support/thread_ranks.h"
#include "transport/loopback/loopback.h"

namespace dlaunch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What a WatchedEndpoint has seen.
struct Watch {
  std::atomic<int> polls{0};
  std::atomic<int> polls_after_failure{0};  // although a transfer had ended badly
};

// Passes everything on, and sees whether its driver goes on waiting when it should tell.
class WatchedEndpoint final : public Endpoint {
 public:
  WatchedEndpoint(std::unique_ptr<Endpoint> endpoint, Watch& watch)
      : endpoint_(std::move(endpoint)), watch_(watch) {}

  int rank() const override { return endpoint_->rank(); }
  int world_size() const override { return endpoint_->world_size(); }
  void start_send(Transfer& transfer) override {
    endpoint_->start_send(transfer);
    look_after(transfer);
  }
  void start_recv(Transfer& transfer) override {
    endpoint_->start_recv(transfer);
    look_after(transfer);
  }
  void cancel(Transfer& transfer, Status why) override {
    open_.clear();  // all end with it
    endpoint_->cancel(transfer, std::move(why));
  }
  void poll(Deadline deadline, const Readiness* also) override {
    ++watch_.polls;
    if (bad_ && endpoint_->failure().ok()) ++watch_.polls_after_failure;
    endpoint_->poll(deadline, also);
    std::erase_if(open_, [this](const Transfer* transfer) { return has_ended(*transfer); });
  }
  void wake() override { endpoint_->wake(); }
  Status failure() const override { return endpoint_->failure(); }
  void fail(Status why) override {
    open_.clear();
    endpoint_->fail(std::move(why));
  }
  const char* transport_name(int peer) const override { return endpoint_->transport_name(peer); }
  std::span<const int> departed() const override { return endpoint_->departed(); }
  SharedGroup* shared_group() override { return endpoint_->shared_group(); }

 private:
  bool has_ended(const Transfer& transfer) {
    bad_ = bad_ || (transfer.done() && !transfer.status().ok());
    return transfer.done();
  }
  void look_after(const Transfer& transfer) {
    if (!has_ended(transfer)) open_.push_back(&transfer);
  }

  std::unique_ptr<Endpoint> endpoint_;
  Watch& watch_;
  std::vector<const Transfer*> open_;
  bool bad_ = false;
};

// Three ranks, of which rank 0's messages are watched.
class Seat : public ::testing::Test {
 protected:
  Seat() {
    for (int lane = 0; lane < kCommunicatorLanes; ++lane) {
      networks_.emplace_back(3, describe_signature, share_memory());
    }
    for (int rank = 0; rank < 3; ++rank) {
      Lanes lanes;
      for (LoopbackNetwork& network : networks_) lanes.push_back(network.endpoint(rank));
      constexpr auto kMessages = static_cast<std::size_t>(LaneKind::kAsync);
      if (rank == 0) {
        lanes[kMessages] = std::make_unique<WatchedEndpoint>(std::move(lanes[kMessages]), watch_);
      }
      ranks_.push_back(make_communicator(std::move(lanes), {.timeout = kTimeout}).value_or_throw());
    }
  }

  // Another thread of rank 0, which drives the lane while it waits for a message of rank 1, which
  // sends none.
  void receive_in_a_thread() {
    driver_ = std::thread([this] {
      std::vector<int> data(10);
      driven_ = ranks_[0]->recv(data, 1);
    });
    const Deadline deadline = soon();
    while (watch_.polls == 0 && !deadline.expired()) std::this_thread::yield();
  }

  // The communicator of rank 0 has failed with the right cause, and whoever waits knows it.
  void expect_the_cause_everywhere(const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kPeerLeft) << status.to_string();
    EXPECT_EQ(status.peer(), 2) << status.to_string();
    if (driver_.joinable()) {
      driver_.join();
      EXPECT_EQ(driven_.code(), StatusCode::kPeerLeft) << driven_.to_string();
      EXPECT_THAT(driven_.to_string(),
                  AllOf(StartsWith("recv i32[10] from rank 1: "), HasSubstr("peer 2: ")));
    }
    const Status later = ranks_[0]->barrier();
    EXPECT_EQ(later.peer(), 2) << later.to_string();
    EXPECT_EQ(ranks_[1]->barrier().peer(), 2) << "rank 1 is told, too";
    EXPECT_EQ(watch_.polls_after_failure, 0);
  }

  static constexpr std::chrono::seconds kTimeout{20};
  Watch watch_;  // outlives the endpoint
  std::vector<LoopbackNetwork> networks_;
  std::vector<int> data_ = std::vector<int>(10);
  std::vector<int> more_ = std::vector<int>(10);
  std::vector<std::unique_ptr<Communicator>> ranks_;  // destroyed before their buffers
  std::thread driver_;
  Status driven_;
};

TEST_F(Seat, IsGivenUpWhenAnotherThreadsMessageFails) {
  receive_in_a_thread();
  Work work = ranks_[0]->start_recv(data_, 2);
  ranks_[2].reset();
  expect_the_cause_everywhere(work.wait());
}

TEST_F(Seat, IsGivenUpWhenAnotherThreadsMessageFailsAtOnce) {
  ranks_[2].reset();
  receive_in_a_thread();
  expect_the_cause_everywhere(ranks_[0]->start_send(data_, 2).wait());
}

TEST_F(Seat, IsGivenUpWhenACollectiveFails) {
  receive_in_a_thread();
  Work work = ranks_[0]->start_all_reduce(data_);
  (void)ranks_[1]->start_all_reduce(more_);
  ranks_[2].reset();
  expect_the_cause_everywhere(work.wait());
}

TEST_F(Seat, IsGivenUpByTheProgressThread) {
  Work silent = ranks_[0]->start_recv(data_, 1);
  Work failing = ranks_[0]->start_recv(more_, 2);
  ranks_[2].reset();
  expect_the_cause_everywhere(failing.wait());
  EXPECT_EQ(silent.wait().peer(), 2);
}

}  // namespace
}  // namespace dlaunch::testing
