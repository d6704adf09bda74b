#include "runtime/rendezvous/store_batch.h"

#include <string>

namespace dlaunch {

using store_protocol::Operation;

void StoreBatch::set(std::string_view key, std::string_view value) {
  requests_.push_back({.code = static_cast<std::uint8_t>(Operation::kSet),
                       .parts = {std::string(key), std::string(value)}});
}

void StoreBatch::add(std::string_view key, std::int64_t amount) {
  requests_.push_back({.code = static_cast<std::uint8_t>(Operation::kAdd),
                       .number = amount,
                       .parts = {std::string(key)}});
}

void StoreBatch::append(std::string_view key, std::string_view bytes) {
  requests_.push_back({.code = static_cast<std::uint8_t>(Operation::kAppend),
                       .parts = {std::string(key), std::string(bytes)}});
}

void StoreBatch::remove(std::string_view key) {
  requests_.push_back(
      {.code = static_cast<std::uint8_t>(Operation::kRemove), .parts = {std::string(key)}});
}

}  // namespace dlaunch
