// The records of a file of TensorBoard's events, taken apart by the layout of TFRecord.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace dlaunch::testing {

template <typename Number>
Number number_at(const std::string& bytes, std::size_t at) {
  Number number{};
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

struct EventRecord {
  std::string length;  // as it is written
  std::uint32_t length_sum = 0;
  std::string payload;
  std::uint32_t payload_sum = 0;

  /// The event without the time at which it was written: a tag and eight bytes.
  std::string event() const { return payload.substr(9); }
};

inline std::vector<EventRecord> event_records(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  const std::string bytes = text.str();
  std::vector<EventRecord> records;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto length = number_at<std::uint64_t>(bytes, at);
    records.push_back({.length = bytes.substr(at, 8),
                       .length_sum = number_at<std::uint32_t>(bytes, at + 8),
                       .payload = bytes.substr(at + 12, length),
                       .payload_sum = number_at<std::uint32_t>(bytes, at + 12 + length)});
    at += 12 + length + 4;
  }
  return records;
}

}  // namespace dlaunch::testing
