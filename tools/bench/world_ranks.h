// Ranks and Link over a Communicator.
#pragma once

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "tools/bench/measure/point_to_point.h"
#include "tools/bench/measure/ranks.h"

namespace dlaunch::bench {

class WorldRanks : public Ranks {
 public:
  explicit WorldRanks(Communicator& world) : world_(world) {}
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  void barrier() override { throw_if_error(world_.barrier()); }
  void maximum(std::span<double> values) override {
    throw_if_error(world_.all_reduce(values, ReduceOp::kMax));
  }

 private:
  Communicator& world_;
};

class WorldLink : public Link {
 public:
  WorldLink(Communicator& world, int peer) : world_(world), peer_(peer) {}
  void send(const std::byte* data, std::size_t bytes) override {
    throw_if_error(world_.send({data, bytes, DType::kU8}, peer_));
  }
  void receive(std::byte* data, std::size_t bytes) override {
    throw_if_error(world_.recv({data, bytes, DType::kU8}, peer_));
  }

 private:
  Communicator& world_;
  int peer_;
};

}  // namespace dlaunch::bench
