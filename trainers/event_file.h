// EventFile: scalars in the format that TensorBoard reads.
//
// The file is a sequence of TFRecords (length, masked CRC-32C of it, payload, masked CRC-32C of
// that), each an Event of tensorflow/core/util/event.proto. Of that only a handful of fields is
// needed, so they are encoded here: libprotobuf and generated code would be the largest dependency
// of the project.
//
// Every write() is in the file when it returns, so what a killed run has written can be read. A run
// that goes on from a checkpoint opens a file of its own; its first record tells TensorBoard to
// forget steps of earlier files that are to be trained again. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace dlaunch {

struct Scalar {
  std::string_view tag;  // "train/loss"
  double value = 0;
};

class EventFile {
 public:
  /// Writes nowhere.
  EventFile() = default;
  /// Makes the directory and a new file in it. Throws std::runtime_error.
  explicit EventFile(const std::string& directory);

  /// Steps from this one on follow: what earlier files of the directory have of them is void.
  void restart_at(std::uint64_t step);
  /// Throws std::runtime_error if the record cannot be written (the disk is full).
  void write(std::uint64_t step, std::span<const Scalar> scalars);

  /// Empty: nowhere.
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void append(const std::string& event);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// CRC-32C (Castagnoli), as RFC 3720 has it.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace dlaunch
