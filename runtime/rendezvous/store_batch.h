// StoreBatch: changes to a store that are sent together, so that one does not wait for the answer
// of another; see TcpStore::run(). A value; one thread at a time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/rendezvous/store_protocol.h"

namespace dlaunch {

class StoreBatch {
 public:
  void set(std::string_view key, std::string_view value);
  void add(std::string_view key, std::int64_t amount);
  void append(std::string_view key, std::string_view bytes);
  void remove(std::string_view key);

  std::size_t size() const { return requests_.size(); }
  void clear() { requests_.clear(); }
  const std::vector<store_protocol::Message>& requests() const { return requests_; }

 private:
  std::vector<store_protocol::Message> requests_;
};

}  // namespace dlaunch
