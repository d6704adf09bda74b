// Dataset: labelled images, numbered from 0, all of one size.
//
// Implementations: CIFAR binary files (cifar.h), folders of images (image_folder.h), a built-in set
// (synthetic.h). All const members may be called from any thread at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace dlaunch::nn {

/// Data files that are missing, truncated or wrong. The text names the file, the record and what to
/// do.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file that is there, but not whole: truncated, or some of its bytes have changed.
class DamagedFile : public DataError {
 public:
  using DataError::DataError;
};

/// Images are HWC: channels innermost.
struct ImageShape {
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 0;

  constexpr std::size_t size() const { return height * width * channels; }
  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::size_t size() const = 0;
  virtual ImageShape image_shape() const = 0;
  /// As many as there are classes.
  virtual const std::vector<std::string>& class_names() const = 0;
  /// In [0, class_names().size()).
  virtual std::int32_t label(std::size_t index) const = 0;
  /// Writes image `index` as image_shape().size() bytes. Throws DataError.
  virtual void copy_image(std::size_t index, std::span<std::uint8_t> image) const = 0;
  /// Another text for other data, so that a run is not resumed on data that have changed. May read
  /// everything. Throws DataError.
  virtual std::string fingerprint() const = 0;
  /// A line for the user about what was made of the files; empty: nothing that would surprise.
  virtual std::string remark() const { return ""; }
};

}  // namespace dlaunch::nn
