#include "nn/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <spdlog/fmt/fmt.h>
#include <nlohmann/json.hpp>

#include "nn/checkpoint/atomic_file.h"
#include "nn/core/digest.h"
#include "nn/core/error.h"
#include "nn/data/dataset.h"  // DataError
#include "runtime/base/json_reader.h"

namespace dlaunch::nn {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's numbers are little-endian");

constexpr const char* kMetadata = "__metadata__";
constexpr const char* kOwn = "dlaunch.";  // with which all keys of our own metadata begin
constexpr const char* kDigests = "dlaunch.digests";  // JSON: tensor -> digest, "" -> the metadata's
constexpr std::uint64_t kLongestHeader = 100'000'000;  // as the reference implementation has it
constexpr std::size_t kDataAlignment = 64;             // of the data within the file
constexpr std::size_t kLengthBytes = 8;

constexpr std::array<std::pair<const char*, DType>, 10> kDTypes{{{"F16", DType::kF16},
                                                                 {"BF16", DType::kBF16},
                                                                 {"F32", DType::kF32},
                                                                 {"F64", DType::kF64},
                                                                 {"I32", DType::kI32},
                                                                 {"I64", DType::kI64},
                                                                 {"U8", DType::kU8},
                                                                 {"I8", DType::kI8},
                                                                 {"U32", DType::kU32},
                                                                 {"U64", DType::kU64}}};

const char* dtype_name(DType dtype) {
  for (const auto& [name, value] : kDTypes)
    if (value == dtype) return name;
  return "?";
}

std::vector<std::int64_t> extents(const Shape& shape) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i) all[static_cast<std::size_t>(i)] = shape[i];
  return all;
}

std::string metadata_digest(const TensorMetadata& metadata) {
  return digest_of(nlohmann::json(metadata).dump());
}

/// The header with its length in front, padded so that the data behind it is aligned.
std::string make_header(std::span<const TensorBytes> tensors, TensorMetadata metadata) {
  nlohmann::json digests;
  nlohmann::ordered_json header;
  header[kMetadata] = {};
  std::uint64_t end = 0;
  for (const TensorBytes& tensor : tensors) {
    const std::uint64_t begin = std::exchange(end, end + tensor.bytes.size());
    header[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                           {"shape", extents(tensor.shape)},
                           {"data_offsets", {begin, end}}};
    digests[tensor.name] = digest_of(tensor.bytes);
  }
  digests[""] = metadata_digest(metadata);
  metadata[kDigests] = digests.dump();
  header[kMetadata] = metadata;
  std::string text = header.dump();
  text.append((kDataAlignment - (kLengthBytes + text.size()) % kDataAlignment) % kDataAlignment,
              ' ');
  const std::uint64_t length = text.size();
  std::string result(kLengthBytes, '\0');
  std::memcpy(result.data(), &length, kLengthBytes);
  return result + text;
}

/// Of at most Shape::kMaxRank dimensions.
Shape read_shape(const nlohmann::json& value) {
  const auto dims = value.get<std::vector<std::int64_t>>();
  switch (dims.size()) {
    case 0:
      return {};
    case 1:
      return {dims[0]};
    case 2:
      return {dims[0], dims[1]};
    case 3:
      return {dims[0], dims[1], dims[2]};
    default:
      return {dims[0], dims[1], dims[2], dims[3]};
  }
}

/// Returns why the tensor cannot be read here: it is of a type or rank that is not known; empty: it
/// can. Throws nn::Error for a shape that no tensor has.
std::string read_type_and_shape(const nlohmann::json& shape, SafetensorsFile::Entry& entry) {
  const auto* const known = std::ranges::find_if(
      kDTypes, [&](const auto& candidate) { return entry.type == candidate.first; });
  if (known == kDTypes.end()) return fmt::format("its type {} is not known here", entry.type);
  if (shape.size() > Shape::kMaxRank)
    return fmt::format("it has {} dimensions; at most {} are known here", shape.size(),
                       Shape::kMaxRank);
  entry.dtype = known->second;
  entry.shape = read_shape(shape);
  return "";
}

/// Throws nlohmann's exceptions and nn::Error.
SafetensorsFile::Entry read_entry(const nlohmann::json& value) {
  SafetensorsFile::Entry entry;
  entry.type = value.at("dtype").get<std::string>();
  for (const nlohmann::json& dim : value.at("shape"))
    if (!dim.is_number_unsigned()) throw Error("its shape is impossible");
  const nlohmann::json& range = value.at("data_offsets");
  if (range.size() != 2 || !range.at(0).is_number_unsigned() || !range.at(1).is_number_unsigned())
    throw Error("its data_offsets are not two whole numbers");
  entry.begin = range.at(0);
  entry.end = range.at(1);
  if (entry.end < entry.begin) throw Error("its data_offsets descend");
  entry.obstacle = read_type_and_shape(value.at("shape"), entry);
  if (!entry.obstacle.empty()) return entry;
  const std::uint64_t bytes = static_cast<std::uint64_t>(entry.shape.size()) * size_of(entry.dtype);
  if (entry.end - entry.begin != bytes)
    throw Error(
        fmt::format("its offsets hold {} bytes, its shape {}", entry.end - entry.begin, bytes));
  return entry;
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const TensorBytes> tensors,
                       TensorMetadata metadata) {
  AtomicFile file(path);
  const std::string header = make_header(tensors, std::move(metadata));
  file.write(std::as_bytes(std::span(header)));
  for (const TensorBytes& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  constexpr int kHow = O_RDONLY | O_CLOEXEC | O_NONBLOCK;  // else a FIFO waits for who writes to it
  file_ = Descriptor(::open(path.c_str(), kHow));
  if (!file_.is_open())
    throw DataError(fmt::format("{}: {}", path, std::generic_category().message(errno)));
  read_header();
}

void SafetensorsFile::refuse(const std::string& name, const std::string& why) const {
  throw DataError(fmt::format("{}: {}: {}", path_, name, why));
}

void SafetensorsFile::damaged(const std::string& name, const std::string& why) const {
  throw DamagedFile(fmt::format("{}: {}: {}", path_, name, why));
}

void SafetensorsFile::read_at(std::uint64_t position, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(position));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw DataError(fmt::format("{}: {}", path_, std::generic_category().message(errno)));
    if (count == 0) throw DamagedFile(fmt::format("{}: truncated", path_));
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    position += static_cast<std::uint64_t>(count);
  }
}

/// Of a file whose first bytes are no length of a header.
void SafetensorsFile::refuse_format(std::uint64_t first_bytes) const {
  constexpr std::uint64_t kZip = 0x04034B50;  // "PK"; torch.save's format since torch 1.6
  constexpr std::uint64_t kPickle = 0x80;     // and before
  const bool is_torchs = (first_bytes & 0xFFFFFFFF) == kZip || (first_bytes & 0xFF) == kPickle;
  if (first_bytes > kLongestHeader && is_torchs)
    throw DataError(path_ +
                    ": looks like a file of torch.save, which is not read here; in Python, write "
                    "safetensors.torch.save_file(model.state_dict(), \"NAME.safetensors\")");
  throw DamagedFile(path_ + ": truncated, or no safetensors file");
}

/// Throws nlohmann's exceptions.
void SafetensorsFile::read_digests() {
  if (const auto digests = metadata_.extract(kDigests); !digests.empty()) {
    digests_ = nlohmann::json::parse(digests.mapped()).get<TensorMetadata>();
    if (digests_[""] != metadata_digest(metadata_)) damaged(kMetadata, "damaged: wrong checksum");
  } else if (const auto own = metadata_.lower_bound(kOwn);
             own != metadata_.end() && own->first.starts_with(kOwn)) {
    damaged(kMetadata, fmt::format("damaged: {} is there, but no checksums", own->first));
  }
}

void SafetensorsFile::read_header() {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw DataError(path_ + ": not a regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::uint64_t length = 0;
  if (size < kLengthBytes) throw DamagedFile(path_ + ": truncated, or no safetensors file");
  read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kLongestHeader || length > size - kLengthBytes) refuse_format(length);
  data_begin_ = kLengthBytes + length;
  std::string text(length, '\0');
  read_at(kLengthBytes, std::as_writable_bytes(std::span(text)));

  std::string name = "header";  // what an error is about
  try {
    const nlohmann::json header = parse_json(text, path_);
    for (const auto& item : header.items()) {
      name = item.key();
      if (name == kMetadata)
        metadata_ = item.value().get<TensorMetadata>();
      else
        tensors_[name] = read_entry(item.value());
    }
    name = kMetadata;
    read_digests();
  } catch (const nlohmann::json::exception&) {
    damaged(name, "damaged: not what a safetensors header has there");
  } catch (const ConfigError&) {
    damaged(name, "damaged: header is not valid JSON");
  } catch (const Error& error) {
    refuse(name, error.what());
  }

  std::map<std::uint64_t, std::pair<std::uint64_t, std::string>> by_begin;
  for (const auto& [tensor, entry] : tensors_)
    if (entry.begin != entry.end && !by_begin.try_emplace(entry.begin, entry.end, tensor).second)
      damaged(tensor, "overlaps another tensor");
  std::uint64_t end = 0;
  for (const auto& [begin, rest] : by_begin) {
    if (begin != end) damaged(rest.second, "there is a gap or an overlap before it");
    end = rest.first;
    if (end > size - data_begin_) damaged(rest.second, "truncated");
  }
  if (end != size - data_begin_)
    throw DamagedFile(fmt::format("{}: {} bytes too many", path_, size - data_begin_ - end));
}

const SafetensorsFile::Entry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse(name, "not in this file");
  if (!found->second.obstacle.empty()) refuse(name, found->second.obstacle);
  return found->second;
}

std::vector<std::byte> SafetensorsFile::read(const std::string& name) const {
  const Entry& place = entry(name);
  std::vector<std::byte> bytes(place.end - place.begin);
  read_at(data_begin_ + place.begin, bytes);
  if (!digests_.empty()) {
    const auto digest = digests_.find(name);
    if (digest == digests_.end() || digest->second != digest_of(bytes))
      damaged(name, "damaged: wrong checksum");
  }
  return bytes;
}

}  // namespace dlaunch::nn
