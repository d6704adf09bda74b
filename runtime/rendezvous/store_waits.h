// StoreWaits: a store's table together with the requests that wait for its keys. Belongs to the
// server's thread.
//
// A get_all is registered under one missing key at a time, and goes on from there when that one has
// come, so that it looks at each of its keys about twice however they come. A watch is answered by
// the first change under its prefix.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
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

  explicit StoreWaits(asio::io_context& context,
                      std::size_t most_bytes = store_protocol::kMostStoreBytes,
                      std::string limited_prefix = "")
      : context_(context), table_(most_bytes, std::move(limited_prefix)) {}

  /// Carries out a request, of any operation but stat. `reply` is called once, at once or later,
  /// unless `owner` is forgotten before.
  void handle(Message request, const void* owner, const Reply& reply);

  /// A connection has gone: drops its waits and removes the keys it owned.
  void forget(const void* owner);

  const StoreTable& table() const { return table_; }
  /// Requests that wait now.
  std::size_t waiting() const { return waiting_; }

 private:
  struct Wait;
  using WaitPointer = std::shared_ptr<Wait>;
  // A connection with something to forget.
  struct Owner {
    std::vector<WaitPointer> waits;
    std::size_t waiting_bytes = 0;
  };
  using Owners = std::unordered_map<const void*, Owner>;

  Message change(const Message& request, const void* owner);
  void disown(const Message& request, const void* owner);
  void get_all(Message request, const void* owner, const Reply& reply);
  void watch(Message request, const void* owner, const Reply& reply);
  void wait(Message request, const void* owner, const Reply& reply,
            std::optional<std::size_t> missing_key);
  std::optional<std::size_t> first_missing(const std::vector<std::string>& keys,
                                           std::size_t from) const;
  void register_under(const WaitPointer& wait, std::size_t key);
  void key_changed(const std::string& key);
  void answer_get_alls(const std::string& key);
  void answer_watches(const std::string& key);
  void time_out(const WaitPointer& wait);
  void finish(const WaitPointer& wait, const Message& response);
  void unregister(const WaitPointer& wait);
  void forget_if_idle(Owners::iterator owner);
  Message values_response(const Message& request) const;

  asio::io_context& context_;
  StoreTable table_;
  std::unordered_map<std::string, std::vector<WaitPointer>> by_key_;  // get_alls
  std::vector<WaitPointer> watches_;
  Owners owners_;
  std::unordered_map<std::string, const void*> owned_;  // keys that go with a connection
  std::size_t waiting_ = 0;
};

}  // namespace dlaunch
