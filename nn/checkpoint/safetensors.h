// Files of named tensors in the safetensors format (github.com/huggingface/safetensors): the length
// of a JSON header as eight bytes, the header, and the tensors' bytes one after the other. Python's
// safetensors and torch read them.
//
// The format has no checksums. Ours keep one per tensor, and one for the rest of the metadata, in
// the metadata; files of others, which say nothing of dlaunch there, have none and are read
// without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "nn/core/shape.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/dtype.h"

namespace dlaunch::nn {

/// A tensor to be written; borrows its bytes.
struct TensorBytes {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
};

using TensorMetadata = std::map<std::string, std::string>;

/// Replaces the file atomically (atomic_file.h). Throws std::system_error, also if the disk is
/// full.
void write_safetensors(const std::string& path, std::span<const TensorBytes> tensors,
                       TensorMetadata metadata = {});

/// An open file whose header has been checked: tensors cover the data without gaps or overlaps, and
/// have the sizes of their shapes. Those of types and ranks that are not known here are left alone
/// until somebody asks for them. Const members may be called from any thread.
class SafetensorsFile {
 public:
  struct Entry {
    std::string type;         // the file's word for it: "F32"
    std::uint64_t begin = 0;  // bytes from the start of the data
    std::uint64_t end = 0;
    std::string obstacle;       // why this tensor cannot be read here; empty: it can, as
    DType dtype = DType::kF32;  // numbers of this type
    Shape shape;                // in this shape
  };

  /// Throws DataError with the path: unreadable, of another format; DamagedFile: truncated, or
  /// nothing that is known.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  const TensorMetadata& metadata() const { return metadata_; }

  /// DataError with the tensor's name if there is none, or it cannot be read here.
  const Entry& entry(const std::string& name) const;
  /// The tensor's bytes. Throws as entry() does; DamagedFile if its checksum is wrong.
  std::vector<std::byte> read(const std::string& name) const;

  /// Throws DataError "PATH: NAME: WHY".
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

 private:
  [[noreturn]] void damaged(const std::string& name, const std::string& why) const;
  [[noreturn]] void refuse_format(std::uint64_t first_bytes) const;
  void read_header();
  void read_digests();
  void read_at(std::uint64_t position, std::span<std::byte> bytes) const;

  std::string path_;
  Descriptor file_;
  std::uint64_t data_begin_ = 0;
  std::map<std::string, Entry> tensors_;
  TensorMetadata metadata_;
  TensorMetadata digests_;  // by tensor
};

}  // namespace dlaunch::nn
