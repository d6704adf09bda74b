#include "nn/checkpoint/named_tensors.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "runtime/base/half.h"

namespace dlaunch::nn {
namespace {

/// Shape in a file of a tensor that has `shape` in memory.
Shape file_shape(const Shape& shape) {
  return shape.rank() == 4 ? Shape{shape[0], shape[3], shape[1], shape[2]} : shape;
}

/// A tensor [out, pixels, channels] in memory, [out, channels, pixels] in a file.
struct ImageWeights {
  std::size_t out = 0;
  std::size_t pixels = 0;
  std::size_t channels = 0;
};

/// None: it lies in a file as in memory.
std::optional<ImageWeights> image_weights(const Shape& shape, std::int64_t image_channels) {
  const auto of = [&](std::int64_t pixels, std::int64_t channels) {
    return ImageWeights{.out = static_cast<std::size_t>(shape[0]),
                        .pixels = static_cast<std::size_t>(pixels),
                        .channels = static_cast<std::size_t>(channels)};
  };
  if (shape.size() == 0) return std::nullopt;
  if (shape.rank() == 4) return of(shape[1] * shape[2], shape[3]);
  if (image_channels > 0) return of(shape[1] / image_channels, image_channels);
  return std::nullopt;
}

/// Turns [out][rows][columns] into [out][columns][rows].
std::vector<std::byte> transposed(std::span<const std::byte> bytes, std::size_t out,
                                  std::size_t rows, std::size_t columns, std::size_t size) {
  std::vector<std::byte> result(bytes.size());
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < columns; ++c)
        std::memcpy(&result[((o * columns + c) * rows + r) * size],
                    &bytes[((o * rows + r) * columns + c) * size], size);
  return result;
}

std::vector<std::byte> to_file_layout(std::span<const std::byte> bytes, const ImageWeights& weights,
                                      DType dtype) {
  return transposed(bytes, weights.out, weights.pixels, weights.channels, size_of(dtype));
}

std::vector<std::byte> to_memory_layout(std::span<const std::byte> bytes,
                                        const ImageWeights& weights, DType dtype) {
  return transposed(bytes, weights.out, weights.channels, weights.pixels, size_of(dtype));
}

/// Numbers of type T as f32.
template <typename T>
std::vector<std::byte> to_f32(std::span<const std::byte> bytes) {
  std::vector<std::byte> result(bytes.size() / sizeof(T) * sizeof(float));
  for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    T value;
    std::memcpy(&value, &bytes[i * sizeof value], sizeof value);
    const auto converted = static_cast<float>(value);
    std::memcpy(&result[i * sizeof converted], &converted, sizeof converted);
  }
  return result;
}

/// Whether numbers of this type can be read into tensors of the other: others' networks are often
/// written with fewer bits, ours never.
bool is_readable_as(DType there, DType wanted) {
  const bool floating =
      there == DType::kF16 || there == DType::kBF16 || there == DType::kF32 || there == DType::kF64;
  return there == wanted || (wanted == DType::kF32 && floating);
}

std::vector<std::byte> converted(std::vector<std::byte> bytes, DType there, DType wanted) {
  if (there == wanted) return bytes;
  if (there == DType::kF16) return to_f32<Float16>(bytes);
  return there == DType::kBF16 ? to_f32<BFloat16>(bytes) : to_f32<double>(bytes);
}

template <typename T>
std::size_t count_not_finite(std::span<const std::byte> bytes) {
  std::size_t count = 0;
  for (; !bytes.empty(); bytes = bytes.subspan(sizeof(T))) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    count += std::isfinite(value) ? 0 : 1;
  }
  return count;
}

/// Nothing that begins with such numbers comes to others.
void check_finite(const SafetensorsFile& file, const NamedTensor& item,
                  std::span<const std::byte> bytes) {
  const std::size_t count = item.tensor.dtype() == DType::kF64 ? count_not_finite<double>(bytes)
                                                               : count_not_finite<float>(bytes);
  if (count > 0)
    file.refuse(item.name,
                fmt::format("{} of {} numbers are not finite", count, item.tensor.size()));
}

std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.size()) * size_of(tensor.dtype());
}

const void* read_pointer(const Tensor& tensor) {
  return tensor.dtype() == DType::kF64 ? static_cast<const void*>(tensor.data<const double>())
                                       : static_cast<const void*>(tensor.data<const float>());
}

void* write_pointer(const Tensor& tensor) {
  return tensor.dtype() == DType::kF64 ? static_cast<void*>(tensor.data<double>())
                                       : static_cast<void*>(tensor.data<float>());
}

/// Not so counters and masks, which torch's modules keep beside their weights.
bool is_weight(const std::string& name, const SafetensorsFile::Entry& entry) {
  const bool whole =
      entry.type.starts_with('I') || entry.type.starts_with('U') || entry.type == "BOOL";
  return !whole && !name.ends_with("num_batches_tracked");
}

void check_entry(const SafetensorsFile& file, const NamedTensor& wanted) {
  const SafetensorsFile::Entry& entry = file.entry(wanted.name);
  const Tensor& tensor = wanted.tensor;
  if (tensor.dtype() != DType::kF32 && tensor.dtype() != DType::kF64)
    throw Error(fmt::format("{}: a tensor of {} cannot be read from a file; only f32 and f64 can",
                            wanted.name, to_string(tensor.dtype())));
  if (!is_readable_as(entry.dtype, tensor.dtype()))
    file.refuse(wanted.name, fmt::format("type {}, expected {}", to_string(entry.dtype),
                                         to_string(tensor.dtype())));
  const Shape shape = file_shape(tensor.shape());
  if (entry.shape != shape)
    file.refuse(wanted.name,
                fmt::format("shape {}, expected {}", entry.shape.to_string(), shape.to_string()));
}

}  // namespace

std::vector<NamedTensor> state_of(const Module& module) {
  std::vector<NamedTensor> all;
  for (const NamedParameter& parameter : module.parameters())
    all.push_back({parameter.name, parameter.tensor, parameter.image_channels});
  for (const NamedBuffer& buffer : module.buffers()) all.push_back({buffer.name, buffer.tensor});
  return all;
}

void Snapshot::take(std::span<const NamedTensor> tensors) {
  items_.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i].tensor;
    Item& item = items_[i];
    item.name = tensors[i].name;
    item.dtype = tensor.dtype();
    item.shape = tensor.shape();
    item.image_channels = tensors[i].image_channels;
    item.bytes.resize(bytes_of(tensor));
    tensor.backend().copy_to_host(item.bytes.data(), read_pointer(tensor), item.bytes.size());
  }
}

void Snapshot::write(const std::string& path, const TensorMetadata& metadata) {
  std::vector<std::vector<std::byte>> converted;
  converted.reserve(items_.size());
  std::vector<TensorBytes> tensors;
  for (const Item& item : items_) {
    std::span<const std::byte> bytes = item.bytes;
    if (const auto weights = image_weights(item.shape, item.image_channels))
      bytes = converted.emplace_back(to_file_layout(bytes, *weights, item.dtype));
    tensors.push_back({item.name, item.dtype, file_shape(item.shape), bytes});
  }
  write_safetensors(path, tensors, metadata);
}

void load_tensors(const SafetensorsFile& file, std::span<const NamedTensor> tensors,
                  const std::set<std::string>& left) {
  std::set<std::string> wanted;
  for (const NamedTensor& tensor : tensors) {
    check_entry(file, tensor);  // before what is too much: it says more
    wanted.insert(tensor.name);
  }
  for (const auto& [name, entry] : file.tensors())
    if (!wanted.contains(name) && !left.contains(name) && is_weight(name, entry))
      file.refuse(name, "unexpected tensor: the network has none of this name");
  load_some_tensors(file, tensors);
}

void load_some_tensors(const SafetensorsFile& file, std::span<const NamedTensor> tensors) {
  for (const NamedTensor& tensor : tensors) check_entry(file, tensor);
  for (const NamedTensor& item : tensors) {
    const Tensor& tensor = item.tensor;
    std::vector<std::byte> bytes =
        converted(file.read(item.name), file.entry(item.name).dtype, tensor.dtype());
    check_finite(file, item, bytes);
    if (const auto weights = image_weights(tensor.shape(), item.image_channels))
      bytes = to_memory_layout(bytes, *weights, tensor.dtype());
    tensor.backend().copy_from_host(write_pointer(tensor), bytes.data(), bytes.size());
  }
}

void save_state_dict(const std::string& path, const Module& module) {
  Snapshot snapshot;
  snapshot.take(state_of(module));
  snapshot.write(path, {});
}

void load_state_dict(const std::string& path, const Module& module) {
  load_tensors(SafetensorsFile(path), state_of(module));
}

}  // namespace dlaunch::nn
