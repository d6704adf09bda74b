// Between tensors in memory and tensors in a file: names, layouts, and a copy of the former that
// can be written while training goes on.
//
// In files everything lies as torch has it: tensors of four dimensions are convolution weights, in
// memory [out, height, width, in], in a file [out, in, height, width]; and so are the columns of a
// linear layer that follows a flattened image. With the names of Module::parameters() and
// buffers(), which are torchvision's, torch loads them as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "nn/checkpoint/safetensors.h"
#include "nn/core/module.h"

namespace dlaunch::nn {

/// A tensor, of f32 or f64 (else Error), under the name it has in a file.
struct NamedTensor {
  std::string name;
  Tensor tensor;
  std::int64_t image_channels = 0;  // NamedParameter's
};

/// All parameters and buffers of a module.
std::vector<NamedTensor> state_of(const Module& module);

/// A copy of tensors in host memory. The memory is kept for the next take(). One thread at a time.
class Snapshot {
 public:
  void take(std::span<const NamedTensor> tensors);
  /// Converts to the layout of files and writes. Throws std::system_error.
  void write(const std::string& path, const TensorMetadata& metadata);

 private:
  struct Item {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
    std::int64_t image_channels = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<Item> items_;
};

/// Fills `tensors` from the file; f32 also from f16, bf16 and f64. Other tensors in the file are
/// refused unless they are no weights: of whole numbers, or of a name of torch's that has no
/// counterpart here ("num_batches_tracked"). DataError with the tensor's name: it is missing,
/// unexpected, damaged, has another type or shape, or numbers in it are not finite. Those whose
/// names are `left` stay in the file.
void load_tensors(const SafetensorsFile& file, std::span<const NamedTensor> tensors,
                  const std::set<std::string>& left = {});

/// The same, whatever else is in the file.
void load_some_tensors(const SafetensorsFile& file, std::span<const NamedTensor> tensors);

/// A network's parameters and buffers as a file that torch loads (load_state_dict), and back.
void save_state_dict(const std::string& path, const Module& module);
void load_state_dict(const std::string& path, const Module& module);

}  // namespace dlaunch::nn
