// EventFile: scalars in the format that TensorBoard reads.
//
// The file is a sequence of TFRecords (length, masked CRC-32C of it, payload, masked CRC-32C of
// that), each an Event of tensorflow/core/util/event.proto. Of that only a handful of fields is
// needed, so they are encoded here: libprotobuf and generated code would be the largest dependency
// of the project.
//
// Every write() is in the file when it returns (record_file.h), so what a killed run has written
// can be read. A run that goes on from a checkpoint opens a file of its own; its first record tells
// TensorBoard to forget steps of earlier files that are to be trained again. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trainers/output/record_file.h"

namespace dlaunch {

struct Scalar {
  std::string_view tag;  // "train/loss"
  double value = 0;
};

class EventFile {
 public:
  /// Writes nowhere.
  EventFile() = default;
  /// Makes the directory and a new file in it, which stays if something is written. Throws
  /// std::runtime_error.
  explicit EventFile(const std::string& directory);

  /// Steps from this one on follow: what earlier files of the directory have of them is void.
  void restart_at(std::uint64_t step);
  void write(std::uint64_t step, std::span<const Scalar> scalars);
  /// Throws std::runtime_error if a record could not be written (the disk is full).
  void finish();

  /// Empty: nowhere.
  std::string path() const { return file_ == nullptr ? "" : file_->path(); }

 private:
  void append(const std::string& event);

  std::unique_ptr<RecordFile> file_;
  bool begun_ = false;
};

/// CRC-32C (Castagnoli), as RFC 3720 has it.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace dlaunch
