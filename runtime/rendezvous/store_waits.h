// StoreWaits: a store's table together with the requests that wait for keys. Belongs to the
// server's thread.
//
// A wait is registered under one missing key at a time, so that a barrier of n clients over n keys
// costs n registrations, not n squared.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include "runtime/rendezvous/store_protocol.h"
#include "runtime/rendezvous/store_table.h"

namespace dlaunch {

class StoreWaits {
 public:
  using Message = store_protocol::Message;
  using Reply = std::function<void(const Message&)>;

  explicit StoreWaits(asio::io_context& context) : context_(context) {}

  /// Carries out a request. `reply` is called once, at once or later, unless `owner` is forgotten
  /// before.
  void handle(Message request, const void* owner, const Reply& reply);

  /// Drops the waits of a connection that has gone.
  void forget(const void* owner);

 private:
  struct Wait;

  void get_all(Message request, const void* owner, const Reply& reply);
  void wait_for(const std::shared_ptr<Wait>& wait, const std::string& key);
  void key_was_set(const std::string& key);
  void time_out(const std::shared_ptr<Wait>& wait);
  void unregister(const Wait& wait);
  Message values_response(const Message& request) const;

  asio::io_context& context_;
  StoreTable table_;
  std::unordered_map<std::string, std::vector<std::shared_ptr<Wait>>> by_key_;
  std::unordered_map<const void*, std::vector<std::shared_ptr<Wait>>> by_owner_;
};

}  // namespace dlaunch
