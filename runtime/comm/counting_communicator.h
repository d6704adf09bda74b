// CountingCommunicator: forwards everything to another communicator and counts it, so that a
// program or a test can say how many collectives something really takes.
//
// Any thread may call any member.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "runtime/comm/communicator.h"

namespace dlaunch {

class CountingCommunicator final : public Communicator {
 public:
  /// `inner` outlives this object.
  explicit CountingCommunicator(Communicator& inner) : inner_(inner) {}

  /// Calls since the beginning or the last reset(), blocking and asynchronous, also failed ones.
  /// Not split(), nor what its parts are called for.
  std::uint64_t count(CollectiveKind kind) const { return counts_[index(kind)]; }
  std::uint64_t collectives() const {
    std::uint64_t sum = 0;
    for (const CollectiveKind kind : kAllCollectiveKinds) sum += count(kind);
    return sum;
  }
  /// Bytes that this rank handed to collectives as input.
  std::uint64_t collective_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& bytes : bytes_) sum += bytes;
    return sum;
  }
  std::uint64_t bytes(CollectiveKind kind) const { return bytes_[index(kind)]; }
  std::uint64_t messages_sent() const { return sent_; }
  std::uint64_t messages_received() const { return received_; }
  void reset() {
    for (auto& count : counts_) count = 0;
    for (auto& bytes : bytes_) bytes = 0;
    sent_ = 0;
    received_ = 0;
  }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Status run(const CollectiveCall& call) override {
    note(call);
    return inner_.run(call);
  }
  Work start(const CollectiveCall& call) override {
    note(call);
    return inner_.start(call);
  }
  Status send(ConstBuffer data, int peer, std::uint64_t tag) override {
    ++sent_;
    return inner_.send(data, peer, tag);
  }
  Status recv(Buffer data, int peer, std::uint64_t tag, int* sender = nullptr) override {
    ++received_;
    return inner_.recv(data, peer, tag, sender);
  }
  Work start_send(ConstBuffer data, int peer, std::uint64_t tag) override {
    ++sent_;
    return inner_.start_send(data, peer, tag);
  }
  Work start_recv(Buffer data, int peer, std::uint64_t tag, int* sender = nullptr) override {
    ++received_;
    return inner_.start_recv(data, peer, tag, sender);
  }
  /// The parts are not wrapped.
  Result<std::unique_ptr<Communicator>> split(int color, int key) override {
    return inner_.split(color, key);
  }
  Result<SharedMemory> allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  void set_reduce_order(ReduceOrder order) override { inner_.set_reduce_order(order); }
  ReduceOrder reduce_order() const override { return inner_.reduce_order(); }
  void set_timeout(std::chrono::nanoseconds timeout) override { inner_.set_timeout(timeout); }
  void abort(Status why) override { inner_.abort(std::move(why)); }

 private:
  static std::size_t index(CollectiveKind kind) { return static_cast<std::size_t>(kind); }
  void note(const CollectiveCall& call) {
    const std::size_t kind = std::min(index(call.kind), counts_.size() - 1);
    ++counts_[kind];
    bytes_[kind] += call.input.bytes();
    for (const Buffer& piece : call.pieces) bytes_[kind] += piece.bytes();
  }

  Communicator& inner_;
  // By kind, of which the numbers begin at 1; the last one is for what is none.
  std::array<std::atomic<std::uint64_t>, std::size(kAllCollectiveKinds) + 2> counts_{};
  std::array<std::atomic<std::uint64_t>, std::size(kAllCollectiveKinds) + 2> bytes_{};
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

}  // namespace dlaunch
